//! Names and their values, and what only looks like them.

use crate::support::{check, clean};

#[test]
fn values_of_telling_names_go_and_the_names_stay() {
    for (input, expect) in [
        ("PASSWORD=hunter2x", "PASSWORD=<password>"),
        ("export DB_PASSWORD='s3cr3t!x'", "export DB_PASSWORD='<password>'"),
        ("GITHUB_TOKEN=abc123def456ghi", "GITHUB_TOKEN=<secret-value>"),
        (r#"{"clientSecret": "a1b2c3d4e5f6"}"#, r#"{"clientSecret": "<secret-value>"}"#),
        (r#"{\"clientSecret\": \"a1b2c3d4e5f6\"}"#, r#"{\"clientSecret\": \"<secret-value>\"}"#),
        ("mysql --password hunter2x -h x", "mysql --password <password> -h x"),
        ("curl --api-key=Zx81kq99Lm -v", "curl --api-key=<secret-value> -v"),
        ("password: hunter2x\nnext: one", "password: <password>\nnext: one"),
        ("  db_password = \"p w4 o r d\"  ", "  db_password = \"<password>\"  "),
        ("https://x/?access_token=Zx81kq99Lm00&b=1", "https://x/?access_token=<secret-value>&b=1"),
        ("Authorization: Bearer abcDEF0123456789", "Authorization: Bearer <authorization>"),
        ("-H 'authorization: token Zx81kq99Lm00'", "-H 'authorization: token <authorization>'"),
        ("Cookie: sid=Zx81kq99Lm00; theme=dark", "Cookie: sid=<cookie>"),
        ("Set-Cookie: sid=Zx81kq99Lm00; Path=/; HttpOnly", "Set-Cookie: sid=<cookie>; Path=/; HttpOnly"),
        ("postgres://app:Zx81kq99@db:5432/x", "postgres://app:<url-password>@db:5432/x"),
        ("https://u:p@ss@host/x", "https://u:<url-password>@host/x"),
        ("<password>Zx81kq99</password>", "<password><password></password>"),
        ("let api_key: &str = \"Zx81kq99Lm00\";", "let api_key: &str = \"<secret-value>\";"),
        ("Server=x;Pwd=Zx81kq99;Database=y", "Server=x;Pwd=<password>;Database=y"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzABCDEF99", "aws_secret_access_key = <secret-value>"),
        ("X-Api-Key: Zx81kq99Lm00", "X-Api-Key: <secret-value>"),
        ("[\"--token\", \"Zx81kq99Lm00\"]", "[\"--token\", \"<secret-value>\"]"),
    ] {
        check(&[], input, expect);
    }
}

#[test]
fn what_only_looks_like_a_secret_stays() {
    for input in [
        "password: String,",
        "token: &str",
        "let token = tokens.next()?;",
        "key = map.keys().next()",
        "def login(user, password=None):",
        "password = getpass.getpass()",
        "PASSWORD=$DB_PASSWORD",
        "PASSWORD=${DB_PASSWORD:-x1234567}",
        "token={{ secrets.token9 }}",
        "api_key: <your-api-key-123>",
        "\"primaryKey\": \"id12345678\"",
        "public_key = \"AAAAB3NzaC1yc2EAAAADAQABAAABgQ\"",
        "The password: it must have 8 letters",
        "max_tokens: 4096",
        "\"key\": \"d41d8cd98f00b204e9800998ecf8427e\"",
        "token: 550e8400-e29b-41d4-a716-446655440000",
        "SSH_KEY_PATH=/home/me/.ssh/id_ed25519",
        "PWD=/work/project-1/src",
        "key=lambda x: x[1]",
        "secretName: my-app-secret-v2",
        "https://localhost:8080/x@y",
        "git@github.com:org/repo.git",
        "http://user:${PASS}@host/",
        "if token == 'abc123def456'",
        "assert key::new(1)",
        "monkey=abc123def456ghi789",
        "\"password\": \"string\"",
        "Authorization: required",
        "cookie: yes",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "keyboard=us-intl-1234567890abcdef",
    ] {
        assert_eq!(clean(&[], input), input);
    }
}
