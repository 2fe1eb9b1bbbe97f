//! Which arguments of well-known programs are secret. This is data; `command_line` reads commands by it.

/// Which part of an argument is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// The whole argument, if it looks like a token: other arguments may stand in its place.
    Token,
    /// `user:V`
    AfterColon,
    /// `user:V`, or a token alone.
    AfterColonOrToken,
    /// `user%V`
    AfterPercent,
    /// `name=V`
    AfterEquals,
    /// `pass:V`; other words before the colon tell where a password is.
    AfterPass,
    /// `user:V@host`, as in connection strings.
    Connection,
    /// `user/V@host`, or `user/V`.
    AfterSlash,
    /// `user,V`
    AfterComma,
    /// `name=V; name=V`; without `=` it is a file.
    Cookies,
}

/// How a secret is passed to a program.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// `-p V` and `-pV`, also behind other letters.
    Short(u8, Part),
    /// `-pV` alone: before a blank the flag asks for the value.
    Joined(&'static str, Part),
    /// `--user V`, `--user=V`, `-pw V`.
    Long(&'static str, Part),
    /// An argument without a dash: the first one behind the program or its command is 1.
    Nth(usize, Part),
    /// Every argument without a dash.
    Each(Part),
}

/// A program, the commands of it that take secrets, and how.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) names: &'static [&'static str],
    /// One of these words comes first; none: no word is needed.
    pub(crate) commands: &'static [&'static str],
    /// Letters of flags without a value, behind which another flag may follow without a blank.
    pub(crate) letters: &'static [u8],
    pub(crate) forms: &'static [Form],
}

const fn program(names: &'static [&'static str], commands: &'static [&'static str], forms: &'static [Form]) -> Program {
    Program { names, commands, letters: b"", forms }
}

use Form::{Each, Joined, Long, Nth, Short};
use Part::{
    AfterColon, AfterColonOrToken, AfterComma, AfterEquals, AfterPass, AfterPercent, AfterSlash, Connection, Cookies,
    Token, Whole,
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        names: &["curl"],
        commands: &[],
        letters: b"#0123456:aBfgGiIjJkLlMnNOpqRsSvVZ",
        forms: &[
            Short(b'u', AfterColon),
            Short(b'U', AfterColon),
            Short(b'b', Cookies),
            Long("--user", AfterColon),
            Long("--proxy-user", AfterColon),
            Long("--cookie", Cookies),
            Short(b'E', AfterColon),
            Long("--cert", AfterColon),
            Long("--oauth2-bearer", Whole),
        ],
    },
    program(&["ab"], &[], &[Short(b'A', AfterColon)]),
    program(&["etcdctl"], &[], &[Long("--user", AfterColon)]),
    program(&["http", "https", "xh", "xhs"], &[], &[Short(b'a', AfterColonOrToken), Long("--auth", AfterColonOrToken)]),
    program(
        &[
            "mysql",
            "mysqldump",
            "mysqlimport",
            "mysqlshow",
            "mysqlcheck",
            "mysqlbinlog",
            "mysqlsh",
            "mysqlslap",
            "mariadb",
            "mariadb-dump",
            "mariadb-admin",
            "mycli",
        ],
        &[],
        &[Joined("-p", Whole), Each(Connection)],
    ),
    program(&["sqlplus", "impdp", "expdp", "sqlldr"], &[], &[Nth(1, AfterSlash)]),
    program(&["rman"], &["target"], &[Nth(1, AfterSlash)]),
    program(
        &[
            "psexec.py",
            "wmiexec.py",
            "smbexec.py",
            "atexec.py",
            "dcomexec.py",
            "impacket-psexec",
            "impacket-wmiexec",
            "impacket-smbexec",
            "impacket-secretsdump",
            "impacket-mssqlclient",
            "impacket-atexec",
            "impacket-smbclient",
            "impacket-GetUserSPNs",
            "secretsdump.py",
            "mssqlclient.py",
            "smbclient.py",
            "GetUserSPNs.py",
            "GetNPUsers.py",
        ],
        &[],
        &[Each(Connection)],
    ),
    program(&["mysqladmin"], &[], &[Joined("-p", Whole)]),
    program(&["mysqladmin"], &["password"], &[Nth(1, Whole)]),
    program(
        &["mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport", "mongostat", "mongotop"],
        &[],
        &[Short(b'p', Whole)],
    ),
    program(&["redis-cli", "valkey-cli"], &[], &[Short(b'a', Whole), Long("--pass", Whole)]),
    program(
        &["docker", "podman", "nerdctl", "buildah", "helm", "oras", "crane", "oc", "az", "skopeo", "regctl", "cf"],
        &["login"],
        &[Short(b'p', Whole)],
    ),
    program(&["twine"], &["upload"], &[Short(b'p', Whole)]),
    program(
        &[
            "cqlsh",
            "cypher-shell",
            "couchbase-cli",
            "rabbitmqadmin",
            "evil-winrm",
            "crackmapexec",
            "netexec",
            "nxc",
            "psexec",
            "psexec64",
            "PsExec",
            "PsExec64",
            "ncftp",
            "ncftpput",
            "ncftpget",
            "racadm",
            "beeline",
            "altool",
            "yt-dlp",
            "youtube-dl",
            "snowsql",
            "influx",
            "tea",
            "certutil",
        ],
        &[],
        &[Short(b'p', Whole)],
    ),
    program(&["poetry"], &["publish"], &[Short(b'p', Whole)]),
    program(&["nuget", "dotnet"], &["source", "sources"], &[Short(b'p', Whole)]),
    program(
        &["security"],
        &["unlock-keychain", "create-keychain", "set-key-partition-list", "set-keychain-password"],
        &[Short(b'p', Whole), Short(b'k', Whole)],
    ),
    program(&["security"], &["import"], &[Short(b'P', Whole)]),
    program(&["security"], &["add-generic-password", "add-internet-password"], &[Short(b'w', Whole)]),
    program(&["ssh-keygen"], &[], &[Short(b'N', Whole), Short(b'P', Whole)]),
    program(
        &["mosquitto_pub", "mosquitto_sub", "mosquitto_rr", "p4", "gpg-preset-passphrase"],
        &[],
        &[Short(b'P', Whole)],
    ),
    program(&["mosquitto_passwd"], &["-b"], &[Nth(3, Whole)]),
    program(&["rabbitmqctl"], &["add_user", "change_password", "authenticate_user"], &[Nth(2, Whole)]),
    program(&["lftp"], &[], &[Short(b'u', AfterComma), Long("--user", AfterComma)]),
    program(&["signtool", "signtool.exe"], &[], &[Long("/p", Whole)]),
    program(&["schtasks"], &[], &[Long("/rp", Whole)]),
    program(&["cmdkey"], &[], &[Joined("/pass:", Whole)]),
    program(&["wmic"], &[], &[Joined("/password:", Whole)]),
    program(&["swaks"], &[], &[Long("-ap", Whole), Long("--auth-password", Whole)]),
    program(&["sendemail", "sendEmail"], &[], &[Long("-xp", Whole)]),
    program(&["mkpasswd"], &[], &[Each(Token)]),
    program(&["openssl"], &["passwd"], &[Each(Token)]),
    program(&["caddy"], &["hash-password"], &[Long("--plaintext", Whole)]),
    program(&["rclone"], &["obscure"], &[Nth(1, Whole)]),
    program(&["ansible-vault"], &["encrypt_string"], &[Each(Token)]),
    program(&["grafana-cli"], &["reset-admin-password"], &[Nth(1, Whole)]),
    program(&["drush"], &["user:password", "upwd", "user-password"], &[Nth(2, Whole)]),
    program(&["samba-tool"], &["create", "add"], &[Nth(2, Whole)]),
    program(&["pdftotext", "pdftoppm", "pdfinfo", "pdfimages"], &[], &[Long("-upw", Whole), Long("-opw", Whole)]),
    program(&["pdftk"], &["input_pw", "user_pw", "owner_pw"], &[Nth(1, Whole)]),
    program(&["pppd"], &["password"], &[Nth(1, Whole)]),
    program(&["aws"], &["put-parameter"], &[Long("--value", Token)]),
    program(&["aws"], &["secretsmanager"], &[Long("--secret-string", Token)]),
    program(&["az"], &["secret"], &[Long("--value", Whole)]),
    program(&["bw"], &["unlock"], &[Nth(1, Whole)]),
    program(&["bw"], &["login"], &[Nth(2, Whole)]),
    program(&["bw"], &[], &[Long("--session", Whole)]),
    program(&["codecov", "doctl"], &[], &[Short(b't', Token)]),
    program(&["snyk"], &["auth"], &[Nth(1, Token)]),
    program(&["ngrok"], &["authtoken", "add-authtoken"], &[Nth(1, Token)]),
    program(&["nuget"], &["setapikey"], &[Nth(1, Token)]),
    program(&["wandb"], &["login"], &[Each(Token)]),
    program(&["kaggle", "llm"], &["config", "keys"], &[Short(b'v', Token), Long("--value", Token)]),
    program(&["netlify"], &["deploy"], &[Long("--auth", Token)]),
    program(&["netlify"], &["env:set"], &[Nth(2, Token)]),
    program(&["glab"], &["set"], &[Nth(2, Token)]),
    program(&["mc"], &["set", "add"], &[Nth(4, Token)]),
    program(&["vault"], &["unseal"], &[Nth(1, Token)]),
    program(&["composer"], &["config"], &[Nth(2, Token)]),
    program(&["launchctl"], &["setenv"], &[Nth(2, Token)]),
    program(&["swift"], &[], &[Short(b'K', Whole)]),
    program(&["jenkins-cli.jar"], &[], &[Long("-auth", AfterColon)]),
    program(&["chamber"], &["write"], &[Nth(3, Token)]),
    program(&["doppler"], &["set"], &[Nth(2, Token)]),
    program(&["cargo", "vault", "railway", "pulumi", "netlify"], &["login"], &[Each(Token)]),
    program(
        &["openssl", "apksigner"],
        &[],
        &[
            Long("-k", Whole),
            Long("-K", Whole),
            Long("-pass", AfterPass),
            Long("-passin", AfterPass),
            Long("-passout", AfterPass),
            Long("--ks-pass", AfterPass),
            Long("--key-pass", AfterPass),
        ],
    ),
    program(
        &["zip", "unzip", "zipcloak", "sqlcmd", "bcp", "osql", "tsql", "isql", "ipmitool"],
        &[],
        &[Short(b'P', Whole)],
    ),
    program(&["7z", "7za", "7zz", "7zr"], &[], &[Joined("-p", Whole)]),
    program(&["rar", "unrar"], &[], &[Joined("-p", Whole), Joined("-hp", Whole)]),
    program(
        &["ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldapcompare", "ldapmodrdn"],
        &[],
        &[Short(b'w', Whole)],
    ),
    program(&["ldappasswd"], &[], &[Short(b'w', Whole), Short(b's', Whole), Short(b'a', Whole)]),
    program(
        &["smbclient", "rpcclient", "smbget", "smbmap", "winexe", "smbcacls", "smbtree"],
        &[],
        &[Short(b'U', AfterPercent), Long("--user", AfterPercent)],
    ),
    program(&["net"], &[], &[Short(b'U', AfterPercent)]),
    program(&["net"], &["use"], &[Each(Token)]),
    program(&["net"], &["user"], &[Nth(2, Whole)]),
    program(&["xfreerdp", "wfreerdp", "xfreerdp3", "sdl-freerdp"], &[], &[Joined("/p:", Whole)]),
    program(&["plink", "pscp", "psftp", "putty", "kitty"], &[], &[Long("-pw", Whole)]),
    program(
        &["snmpwalk", "snmpget", "snmpset", "snmpbulkwalk", "snmpgetnext", "snmptrap", "snmpstatus", "snmptable"],
        &[],
        &[Short(b'c', Whole), Short(b'A', Whole), Short(b'X', Whole)],
    ),
    program(&["useradd", "usermod"], &[], &[Short(b'p', Whole)]),
    program(&["dotnet", "nuget"], &["push"], &[Short(b'k', Whole)]),
    program(
        &["gh", "glab"],
        &["set"],
        &[Short(b'b', Whole), Long("--body", Whole), Short(b'v', Whole), Long("--value", Whole)],
    ),
    program(&["vault"], &["put"], &[Each(AfterEquals)]),
    program(&["bundle", "bundler"], &["config"], &[Each(AfterColon)]),
    program(&["poetry", "composer"], &["http-basic."], &[Nth(2, Whole)]),
    program(&["wpa_passphrase"], &[], &[Nth(2, Whole)]),
    program(&["ConvertTo-SecureString"], &[], &[Long("-String", Whole), Nth(1, Whole)]),
    program(
        &["htpasswd"],
        &["-b", "-cb", "-bc", "-mb", "-Bb", "-bB", "-cBb", "-cbB", "-Bbc", "-Bcb", "-bm", "-cbm", "-sb", "-bs"],
        &[Nth(3, Whole)],
    ),
    program(
        &["htpasswd"],
        &["-nb", "-bn", "-nbB", "-nBb", "-Bbn", "-bnB", "-Bnb", "-nbm", "-nbs", "-nmb"],
        &[Nth(2, Whole)],
    ),
    program(&["htpasswd"], &["-bnBC", "-nbBC", "-bBnC"], &[Nth(3, Whole)]),
    program(&["rdesktop", "hydra"], &[], &[Short(b'p', Whole)]),
];

/// Commands by which a password follows, and which are found as names of secrets.
pub(crate) const NAMED_COMMANDS: &[&[u8]] = &[
    b"-generic-password",
    b"-internet-password",
    b"-keychain",
    b"change_password",
    b"hash-password",
    b"admin-password",
    b"user:password",
    b"authtoken",
    b"setapikey",
    b"mkpasswd",
    b"openssl passwd",
    b"mosquitto_passwd",
];

/// Texts by which commands are found: parts of the names of programs, commands of theirs, and flags.
pub(crate) const COMMAND_TEXTS: &[&str] = &[
    "curl",
    "mysql",
    "mariadb",
    "mongo",
    "redis-cli",
    "openssl",
    "ldap",
    "snmp",
    "freerdp",
    "7z a",
    "7z x",
    "rar ",
    " -P ",
    " -U ",
    " -a ",
    " -pw ",
    " --auth ",
    " login ",
    "twine ",
    "secret set",
    "kv put",
    "nuget push",
    "bundle config",
    "http-basic",
    "net use",
    "SecureString",
    "sqlplus",
    "exec.py",
    "impacket-",
    " -p ",
    " -N ",
    "rabbitmqctl",
    "lftp ",
    "signtool",
    "schtasks",
    "cmdkey",
    "encrypt_string",
    "put-parameter",
    "keyvault",
    "bw unlock",
    "codecov",
    "snyk auth",
    "mc alias",
    "composer",
    "expdp",
];
