//! Values of telling names are redacted, and similar text is not.

use crate::support::{find_leak, redact};
use countersign_redact::examples::expand;

#[test]
fn values_of_telling_names_are_redacted_and_the_names_stay() {
    let mut wrong = Vec::new();
    for (input, expect) in [
        ("PASSWORD=hunter2x", "PASSWORD=<password>"),
        ("curl -u Zx81kq99Lm00aB3d: https://x", "curl -u <command-password>: https://x"),
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
        ("X-Api-Key: Zx81kq99Lm00", "X-Api-Key: <secret-value>"),
        ("[\"--token\", \"Zx81kq99Lm00\"]", "[\"--token\", \"<secret-value>\"]"),
        ("os.environ[\"API_TOKEN\"] = \"Zx81kq99Lm00\"", "os.environ[\"API_TOKEN\"] = \"<secret-value>\""),
        ("config['password'] = 'Zx81kq99'", "config['password'] = '<password>'"),
        ("KEYSTORE_PASSWORD=Zx81kq99", "KEYSTORE_PASSWORD=<password>"),
        ("primary_access_key = \"Zx81kq99Lm00\"", "primary_access_key = \"<secret-value>\""),
        ("SURVEYMONKEY_ACCESS_TOKEN=Zx81kq99Lm00", "SURVEYMONKEY_ACCESS_TOKEN=<secret-value>"),
        ("API_KEY=wltpszoccipwvcbxwjusvojwmvlaolft", "API_KEY=<secret-value>"),
        ("\"password\": \"vrnkoszljhfumdby\"", "\"password\": \"<password>\""),
        ("DB_PASSWORD=ünïcödé9Pass", "DB_PASSWORD=<password>"),
        ("DB_PASSWORD='$uperS3cretZ'", "DB_PASSWORD='<password>'"),
        ("password: yourMomma99", "password: <password>"),
        ("DB_PASS=Zx81kq99", "DB_PASS=<password>"),
        ("- name: DB_PASSWORD\n  value: Zx81kq99\n", "- name: DB_PASSWORD\n  value: <password>\n"),
        ("{\"name\":\"DB_PASSWORD\",\"value\":\"Zx81kq99\"}", "{\"name\":\"DB_PASSWORD\",\"value\":\"<password>\"}"),
        ("<add key=\"Password\" value=\"Zx81kq99\"/>", "<add key=\"Password\" value=\"<password>\"/>"),
        ("define('DB_PASSWORD', 'Zx81kq99');", "define('DB_PASSWORD', '<password>');"),
        ("os.Setenv(\"API_KEY\", \"Zx81kq99Lm00\")", "os.Setenv(\"API_KEY\", \"<secret-value>\")"),
        ("machine x login y password Zx81kq99\n", "machine x login y password <password>\n"),
        ("ENV API_KEY Zx81kq99Lm00", "ENV API_KEY <secret-value>"),
        ("ALTER USER bob WITH PASSWORD 'Zx81kq99';", "ALTER USER bob WITH PASSWORD '<password>';"),
        ("API Key: Zx81kq99Lm00\n", "API Key: <secret-value>\n"),
        ("API_KEY ?= Zx81kq99Lm00\n", "API_KEY ?= <secret-value>\n"),
        ("API_KEY2=Zx81kq99Lm00", "API_KEY2=<secret-value>"),
        ("\"apiKeyProd\": \"Zx81kq99Lm00\"", "\"apiKeyProd\": \"<secret-value>\""),
        ("passWord=Zx81kq99", "passWord=<password>"),
        ("{\"Cookie\": \"sid=Zx81kq99Lm00\"}", "{\"Cookie\": \"sid=<cookie>\"}"),
        ("Authorization: GenieKey Zx81kq99Lm00", "Authorization: GenieKey <authorization>"),
        ("-H 'X-Api-Key: Zk7!vQ#9pLx2'", "-H 'X-Api-Key: <secret-value>'"),
        ("curl 'https://h/?token=0123456789abcdef0123456789abcdef'", "curl 'https://h/?token=<secret-value>'"),
        ("connecting with password=12345678 user=bob", "connecting with password=<password> user=bob"),
        ("export API_KEY=gQ4j4EtKTGVpBk4wc9sJ \rhB0cVto7QwGGKoAIKIJR\n", "export API_KEY=<secret-value>\n"),
        ("| password | Zx81kq99 |", "| password | <password> |"),
    ] {
        let got = redact(&[], input);
        if got != expect {
            wrong.push((input, got));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn keys_without_a_shape_are_redacted_by_their_names() {
    for seed in 0..50 {
        let key = expand("{base64:40}", seed).unwrap().text;
        for line in [
            format!("aws_secret_access_key = {key}\n"),
            format!("AWS_SECRET_ACCESS_KEY={key}"),
            format!("{{\"SecretAccessKey\": \"{key}\"}}"),
        ] {
            assert_eq!(find_leak(&redact(&[], &line), &key), None, "{line}");
        }
    }
}

#[test]
fn what_surrounds_a_secret_stays() {
    let mut wrong = Vec::new();
    for (input, expect) in [
        (
            "X-Token: sk_live_4eC39HqLyjWDarjtT1zdp7dcaB3dE5fG\r\nContent-Length: 0\r\n",
            "X-Token: sk_live_<stripe-key>\r\nContent-Length: 0\r\n",
        ),
        (
            "{\"msg\":\"{\\\"authorization\\\":\\\"Bearer glagent-aB3dE5fGh7Jk9Lm1Np3Qr5St7Uv9Wx1Yz3Ab5Cd7Ef9Gh1Ij3\\\"}\"}",
            "{\"msg\":\"{\\\"authorization\\\":\\\"Bearer <gitlab-token>\\\"}\"}",
        ),
        (
            "map[Authorization:[Bearer ghs_aB3dE5fGh7Jk9Lm1Np3Qr5St7Uv9Wx1Yz3Ab]]",
            "map[Authorization:[Bearer <bearer>]]",
        ),
        ("sshpass -p hunter2xyz ssh host", "sshpass -p <sshpass> ssh host"),
        ("“API_KEY=aB3dE5fGh7Jk9Lm1Np3Q” x", "“API_KEY=<secret-value>” x"),
        ("«API_TOKEN» = «aB3dE5fGh7Jk9Lm1Np3Q»", "«API_TOKEN» = «<secret-value>»"),
        ("A=1\0API_KEY=aB3dE5fGh7Jk9Lm1Np3Q\0TZ=UTC\0", "A=1\0API_KEY=<secret-value>\0TZ=UTC\0"),
        (
            "https://prod-31.logic.azure.com:443/workflows/0a1b2c3d4e5f60718293a4b5c6d7e8f9?x",
            "https://prod-31.logic.azure.com:443/workflows/0a1b2c3d4e5f60718293a4b5c6d7e8f9?x",
        ),
        ("APP_PASS='xVftE'\\''yCcvE|cIZR' run", "APP_PASS='<password>' run"),
        (
            "2026-11-19 08:12:44 INFO loader: settings for stage two SPOTIFY_CLIENT_SECRET: c3b4d7\r\n868189d7be01a4bafaf87b2cc7\r\n",
            "2026-11-19 08:12:44 INFO loader: settings for stage two SPOTIFY_CLIENT_SECRET: <secret-value>\r\n",
        ),
        (
            "2026-11-19 08:12:44 INFO loader: read REMOTE=ruvello_apikey_7VyU4KoUz5ItCCQV\r\nKw3KEb9z3PE5dlZBmW9S\r\nnext\r\n",
            "2026-11-19 08:12:44 INFO loader: read REMOTE=ruvello_apikey_<prefixed-token>\r\nnext\r\n",
        ),
        (
            "Server=db1;User Id=anna;Password=Kaffee&Kuchen7;Encrypt=true",
            "Server=db1;User Id=anna;Password=<password>;Encrypt=true",
        ),
    ] {
        let got = redact(&[], input);
        if got != expect {
            wrong.push((input, got));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn text_that_only_looks_like_a_secret_stays() {
    let mut wrong = Vec::new();
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
        "PWD=/tmp/csngZc9t4/work",
        "OLDPWD=/tmp/aB3xY9/q7",
        "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-aB3xY9",
        "checksum/secret: d41d8cd98f00b204e9800998ecf8427e",
        "--- PASS: TestToValidUTF8 (0.00s)",
        "\"nextToken\": \"aB3xY9aB3xY9aB3xY9aB3xY9\"",
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
        "authorization = self.headers.get(\"authorization\")",
        "if (!req.headers.authorization) return",
        "HttpHeaderAuthorization: HTTP_HEADER_ID = 24i32",
        "request_token=request.resource_owner_key)",
        "ssh_key: rsa.RSAPrivateKey",
        "passwd=certs[0][2]",
        "key: value pairs, value: 1",
        "const token = await getToken()",
        "primaryKey: 'user_id_2'",
        "public_key: ssh-ed25519",
        "\"ChallengeName\": \"PASSWORD\", \"ChallengeResponses\": {",
        "\"CREDENTIAL\": \"[AuthenticationResponseJSON]\"",
        "<li>Authorization: Included</li>\n",
        "pub const TOKEN: &str = \"$serde_json::private::RawValue\";",
        "DOT11_WPS_DEVICE_PASSWORD_ID = 65535i32;",
        "the copy operation identified by 'x-ms-copy-id'",
        "'-in','ssl_key.pem','-out','ssl_key.passwd.pem','-aes256'",
        "NID_pbeWithSHA1AndRC2_CBC",
        "APIKeys = api_keys_1.APIKeys;",
        "packet.writeString('mysql_native_password', 'latin1');",
        "csrfToken: _context6.t7,",
        "withCredentials = _resolveConfig$withCr === void 0",
        "token=tokenResult.status===\"fulfilled\"",
        "\"@cf/mistralai/mistral-small\": Base_Ai_Cf_Mistralai_Mistral_Small_3_1_24B_Instruct;",
        "you can pass `Buffer.from(secret, 'base64')`",
        "fn(HANDLE, pkey: *const DEFAULT_KEY_VALUE, dot11direction: DOT11_DIRECTION)",
        "if (password === \"required\") {",
        "password, username\nboth, strings\n",
        "| field | password |\n| --- | --- |\n| type | string |\n",
        "password: \"enter-your-current-password\"",
        "const password = \"form-control-input-large\";",
        "AUTH TLS\n",
        "{\"value\": \"aB3xY9aB3xY9aB3xY9aB3xY9\", \"name\": \"color\"}",
    ] {
        let got = redact(&[], input);
        if got != input {
            wrong.push((input, got));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn commands_files_and_links_without_a_secret_stay() {
    let wrong: Vec<_> = ORDINARY.iter().map(|input| (input, redact(&[], input))).filter(|(i, got)| *i != got).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const ORDINARY: &[&str] = &[
    r#"Pwd: "C:\Users\bob\project1""#,
    r#"Pwd: "C:\\Users\\bob\\project1""#,
    "PWD=/home/u/project1",
    "https://${USER:-x}:${PASS}@host/path",
    "KEY1=VALUE1",
    "passman = urllib.request.HTTPPasswordMgrWithDefaultRealm",
    "MovedAttribute(\"HTTPPasswordMgr\", \"urllib2\", \"urllib.request\")",
    "self, private_key: rsa.RSAPrivateKey, f_priv: _FragList",
    "docker run -u 1000:1000 -p 8080:80 nginx1",
    "mkdir -p build1/x && cp -a a1b2c3 d4",
    "curl -u user:password https://x",
    "curl -u $USER:$PASS https://x",
    "curl -u localhost:8080 https://x",
    "curl -o file1.tgz -L https://x/a1b2c3d4.tgz",
    "mysql -h db -P 3306 -p mydb",
    "mysql -u root -p$DB_PASS",
    "ssh -p 2222 bob@host1",
    "openssl rsa -passin env:KEY1 -passout file:x1.txt",
    "openssl rsa -passin stdin",
    "echo hello1 | wc -c",
    "echo v1.2.3 > version",
    "echo \"$TOKEN\" | docker login --password-stdin",
    "echo yes | passwd",
    "password is required for user bob1",
    "the password is base64-encoded",
    "password_encryption = scram-sha-256",
    "test result: 12 pass: 11 fail: 1",
    "\"pass\": true, \"pass\": 12, \"pass\": \"ok\"",
    "auth=none seed=42 salt=abc",
    "auth: required",
    "location / { proxy_pass http://backend1:8080; }",
    "snmp-server community public RO",
    "snmpwalk -v2c -c public host1",
    "git clone https://bob@github.com/org/repo1.git",
    "https://medium.com/@user1/post-abc123",
    "http://host:8080/a/b@c1.example",
    "npm install @types/node@18.0.1 https://r.x/@scope/pkg1",
    "kind: ConfigMap\nmetadata:\n  name: x\ndata:\n  foo: aGVsbG8gd29ybGQ=\n",
    "apiVersion: v1\ndata:\n  foo: aGVsbG8gd29ybGQ=\nkind: ConfigMap\n",
    "localhost:5432: connection refused",
    "src/a.rs:5432:10:5: error1",
    "exit code=0 signal=9",
    "login: bob1 on tty1",
    "the named pipe is identified by `addr1` and created",
    "client.login(\"user\", \"password\")",
    "DEVSTAT_TYPE_PASS = 0x100,",
    "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"gI0GAILBdu7T53akrFmMyGcsF3n5dO7MmwNBHKW5SV0\"}",
    "\"minipass\": \"^7.1.2\", \"fs-minipass\": \"^3.0.0\"",
    "'Test2::Event::Pass'    => '1.302103',",
    "Address6.fromWildcard('*:*:*:*:*:*:*:*')",
    "openssl pkcs12 -passout pass:sample</code></pre>",
    "number P2. The key is stored1in register P3",
    "run `curl `x` now, then curl ` and mysql `",
];
