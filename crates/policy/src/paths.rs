//! Paths by their letters: cleaning, containment, globs, and the places that need care wherever they are reached.

pub(crate) use countersign_model::glob_matches as matches;

/// `base/path`, or `path` when it is absolute.
pub(crate) fn join(base: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", base.trim_end_matches('/')) }
}

/// `.` and `..` and doubled slashes resolved, without looking.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut out = String::with_capacity(path.len());
    for part in &parts {
        out.push('/');
        out.push_str(part);
    }
    if out.is_empty() {
        out.push('/');
    }
    out
}

/// Whether a clean path is a directory or lies in it, component by component.
pub(crate) fn inside(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(crate) fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(n) => &path[..n],
    }
}

pub(crate) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A program at this path is the system's own.
pub(crate) fn is_system(path: &str) -> bool {
    const DIRECTORIES: &[&str] = &["/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    DIRECTORIES.contains(&parent(path)) && path.starts_with('/') && !path.contains("/../") && !path.contains("//")
}

/// Where the system has its programs, beside the usual directories.
const PROGRAM_PLACES: &[&str] =
    &["/usr", "/bin", "/sbin", "/opt", "/nix/store", "/snap", "/lib", "/run/current-system"];
/// Where toolchains keep theirs in a home.
#[rustfmt::skip]
const TOOLCHAINS: &[&str] = &[
    ".cargo/bin", ".rustup", ".local/bin", ".local/share/mise", ".local/share/fnm", ".nvm", ".fnm", ".volta", ".asdf",
    ".pyenv", ".rbenv", ".rvm", ".sdkman", ".goenv", "go/bin", "sdk/go", ".bun/bin", ".deno/bin", ".npm-global/bin",
    ".yarn/bin", ".pnpm", ".local/share/pnpm", ".dotnet", ".poetry/bin", ".rye", ".juliaup/bin", ".ghcup/bin", ".opam",
    ".krew/bin", ".pulumi/bin", ".nix-profile/bin", ".gem", ".elan/bin", ".foundry/bin", "bin",
];

/// Whether a program at this path is what its name says: the system put it there, or a toolchain did.
pub(crate) fn keeps_programs(path: &str, home: &str) -> bool {
    let path = clean(path);
    PROGRAM_PLACES.iter().any(|place| inside(&path, place))
        || below_home(&path, home)
            .is_some_and(|below| TOOLCHAINS.iter().any(|t| inside(&format!("/{below}"), &format!("/{t}"))))
}

/// The part of a path below a home directory, anyone's; the home itself is empty.
pub(crate) fn below_home<'p>(path: &'p str, home: &str) -> Option<&'p str> {
    let rest = |dir: &str| {
        path.strip_prefix(dir).filter(|r| r.is_empty() || r.starts_with('/')).map(|r| r.trim_start_matches('/'))
    };
    if home.len() > 1
        && let Some(rest) = rest(home)
    {
        return Some(rest);
    }
    if let Some(rest) = rest("/root") {
        return Some(rest);
    }
    for homes in ["/home/", "/Users/"] {
        if let Some(user) = path.strip_prefix(homes) {
            return (!user.is_empty()).then(|| user.split_once('/').map_or("", |(_, rest)| rest));
        }
    }
    None
}

/// Directories of a home that hold keys, tokens and histories.
#[rustfmt::skip]
const CREDENTIAL_DIRECTORIES: &[&str] = &[
    ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub",
    ".config/op", ".config/doctl", ".config/rclone", ".config/sops", ".config/age", ".config/containers", ".docker",
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".mozilla", ".config/google-chrome",
    ".config/chromium", ".config/BraveSoftware", ".thunderbird", ".terraform.d", ".oci", ".bluemix", ".minikube",
    ".vagrant.d", ".chef", ".config/heroku", ".step", ".electrum", ".bitcoin", ".ethereum", ".claude", ".codex",
    "Library/Keychains", ".pki",
];
/// Files of a home that do.
#[rustfmt::skip]
const CREDENTIAL_FILES: &[&str] = &[
    ".netrc", "_netrc", ".git-credentials", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".pgpass", ".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto",
    ".vault-token", ".config/git/credentials", ".config/pip/pip.conf", ".composer/auth.json", ".m2/settings.xml",
    ".gradle/gradle.properties", ".nuget/NuGet/NuGet.Config", ".bash_history", ".zsh_history", ".history",
    ".python_history", ".node_repl_history", ".mysql_history", ".psql_history", ".sqlite_history", ".lesshst",
    ".viminfo", ".rediscli_history", ".irb_history", ".fish_history", ".local/share/fish/fish_history", ".Xauthority",
    ".ICEauthority", ".smbcredentials", ".msmtprc", ".fetchmailrc", ".claude.json", ".databrickscfg", ".dockercfg",
];
/// Places of the system that do; everything below them too.
#[rustfmt::skip]
const CREDENTIAL_PLACES: &[&str] = &[
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/krb5.keytab", "/etc/kubernetes",
    "/etc/security/opasswd", "/etc/ppp", "/etc/wireguard", "/etc/openvpn", "/etc/NetworkManager/system-connections",
    "/etc/rancher", "/etc/docker", "/run/secrets", "/var/run/secrets", "/var/lib/docker", "/var/lib/kubelet",
    "/proc/kcore", "/dev/mem", "/dev/kmem", "/var/spool/cron", "/var/lib/secrets", "/etc/cloud", "/etc/machine-id",
];
/// Names that mean a secret wherever they are.
#[rustfmt::skip]
const CREDENTIAL_NAMES: &[&str] = &[
    ".env", ".envrc", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".pgpass", ".dockercfg",
    "credentials", "credentials.json", "credentials.yml", "credentials.yaml", "credentials.toml",
    "client_secret.json", "secrets.json", "secrets.yml", "secrets.yaml", "secrets.toml", "secrets.env", "secret.yml",
    "secret.yaml", "kubeconfig", "kubeconfig.yml", "kubeconfig.yaml", "master.key", "vault.yml", "vault.yaml",
    "terraform.tfstate", "terraform.tfstate.backup", "service-account.json", "service_account.json", "id_rsa",
    "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "authorized_keys", "shadow", "wallet.dat",
    ".vault_pass", ".vault-password", "serviceAccountKey.json", "docker-compose.env", ".boto", ".s3cfg",
];
#[rustfmt::skip]
const CREDENTIAL_ENDINGS: &[&str] = &[
    ".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".kdb", ".ppk", ".p8", ".asc.key", ".keytab",
    ".ovpn", ".tfvars", ".gpg", ".age",
];
/// Endings of files that only show what such a file looks like.
const SAMPLES: &[&str] = &[".example", ".sample", ".template", ".dist", ".pub", ".tpl", ".defaults", ".schema"];

/// Whether reading this file would show a secret.
pub(crate) fn is_credential(path: &str, home: &str) -> bool {
    if CREDENTIAL_PLACES.iter().any(|p| inside(path, p)) {
        return true;
    }
    if let Some(rest) = path.strip_prefix("/proc/") {
        return rest.ends_with("/environ") || rest.ends_with("/mem") || rest.contains("/fd/");
    }
    if path.starts_with("/etc/ssh/ssh_host_") && !path.ends_with(".pub") {
        return true;
    }
    if let Some(below) = below_home(path, home) {
        let below = format!("/{below}");
        if CREDENTIAL_DIRECTORIES.iter().any(|d| inside(&below, &format!("/{d}")))
            || CREDENTIAL_FILES.iter().any(|f| below[1..] == **f)
        {
            return !below.ends_with(".pub") && !below.ends_with("/known_hosts");
        }
    }
    const ANYWHERE: &[&str] = &[
        ".ssh",
        ".aws",
        ".gnupg",
        ".kube",
        ".azure",
        ".password-store",
        ".config/gh",
        ".config/gcloud",
        ".docker/config.json",
        ".vault-token",
    ];
    // Almost no path has a hidden part, and only those need a closer look.
    let ends = |place: &&str| path.strip_suffix(*place).is_some_and(|before| before.ends_with('/'));
    let within = |place: &&str| {
        ends(place)
            || path
                .match_indices(*place)
                .any(|(at, _)| path[..at].ends_with('/') && path[at + place.len()..].starts_with('/'))
    };
    is_credential_name(base(path))
        || path.contains("/.")
            && (ANYWHERE.iter().any(within) || CREDENTIAL_FILES.iter().any(ends))
            && !path.ends_with(".pub")
            && !path.ends_with("/known_hosts")
}

/// Whether a file of this name holds a secret, wherever it is: also as a copy, and in capitals.
pub(crate) fn is_credential_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut name = lower.as_str();
    if SAMPLES.iter().any(|s| name.ends_with(s)) {
        return false;
    }
    for copy in ["~", ".bak", ".old", ".orig", ".backup", ".save", ".copy", ".tmp", ".1", ".swp"] {
        name = name.strip_suffix(copy).unwrap_or(name);
    }
    let spoken = name.contains("credentials")
        && [".json", ".yml", ".yaml", ".toml", ".ini", ".csv", ".txt", ".xml"].iter().any(|e| name.ends_with(e));
    CREDENTIAL_NAMES.contains(&name)
        || [".env.", ".env-", ".env_", ".envrc."].iter().any(|p| name.starts_with(p))
        || name.ends_with(".env")
        || name.ends_with(".tfstate")
        || name == ".secrets"
        || spoken
        || name.len() > 4 && CREDENTIAL_ENDINGS.iter().any(|e| name.ends_with(e))
}

/// Whether a directory holds credential directories somewhere below.
pub(crate) fn covers_credentials(directory: &str, home: &str) -> bool {
    if matches!(directory, "/" | "/home" | "/Users" | "/etc" | "/proc" | "/var" | "/run" | "/var/run" | "/root") {
        return true;
    }
    match below_home(directory, home) {
        Some("") => true,
        Some(below) => {
            let below = format!("/{below}");
            CREDENTIAL_DIRECTORIES.iter().chain(CREDENTIAL_FILES).any(|c| inside(&format!("/{c}"), &below))
        }
        None => false,
    }
}

/// Whether a glob's last part asks for names of secrets.
pub(crate) fn glob_wants_credentials(glob: &str, home: &str) -> bool {
    let last = base(glob);
    let letters: String = last.chars().filter(|c| !matches!(c, '*' | '?' | '[' | ']' | '\\')).collect();
    // What is written out must itself speak of secrets: `*.json` would match credentials.json, and means all others.
    const MARKS: &[&str] = &[
        ".env",
        "pem",
        "key",
        "id_",
        "credential",
        "secret",
        "netrc",
        "pgpass",
        "kubeconfig",
        "shadow",
        "p12",
        "pfx",
        "jks",
        "kdbx",
        "vault",
        "token",
        "htpasswd",
        "npmrc",
        "pypirc",
        "tfstate",
        "tfvars",
        "password",
        "authorized",
    ];
    let speaks =
        MARKS.iter().any(|m| letters.contains(m)) || last.starts_with('.') && last != ".*" && matches(last, ".env");
    if !speaks {
        return is_credential(&clean(&format!("{}/x", parent(glob))), home);
    }
    // `.e*`, `id_*`, `*.pem`: whether any such name fits.
    let names = ["server.pem", "server.key", "x.p12", ".env.local", "prod.env", "id_rsa", "x.pfx", "x.keystore"];
    CREDENTIAL_NAMES.iter().chain(&names).any(|name| matches(last, name)) && !SAMPLES.iter().any(|s| last.ends_with(s))
        || parent(glob).contains("/.ssh")
        || below_home(&clean(parent(glob)), home).is_some_and(|below| {
            let below = format!("/{below}");
            CREDENTIAL_DIRECTORIES.iter().any(|d| inside(&below, &format!("/{d}")))
                || CREDENTIAL_DIRECTORIES.iter().any(|d| {
                    let at = format!("/{d}");
                    parent(&at) == below.trim_end_matches('/') && matches(last, base(&at))
                        || below == "/" && parent(&at) == "/" && matches(last, base(&at))
                })
        })
}

/// How a glob stands to a place: it may name it or something in it, or only something above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meets {
    No,
    Above,
    In,
}

pub(crate) fn glob_meets(glob: &str, place: &str) -> Meets {
    let mut parts: Vec<&str> = Vec::new();
    for part in glob.split('/').filter(|p| !p.is_empty() && *p != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let mut place = place.split('/').filter(|p| !p.is_empty());
    for part in parts {
        match place.next() {
            Some(name) if matches(part, name) => {}
            Some(_) => return Meets::No,
            None => return Meets::In,
        }
    }
    if place.next().is_none() { Meets::In } else { Meets::Above }
}

/// A block device, or something that stands for one.
pub(crate) fn is_block_device(path: &str) -> bool {
    const KINDS: &[&str] = &[
        "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "loop", "dm-", "md", "mapper/", "disk/", "sr", "nbd", "ram", "zram",
        "mtdblock", "bcache", "rbd", "pmem",
    ];
    path.strip_prefix("/dev/").is_some_and(|name| {
        KINDS.iter().any(|k| {
            name.strip_prefix(k).is_some_and(|rest| {
                k.ends_with(['/', '-'])
                    || rest.chars().next().is_some_and(|c| c.is_ascii_alphanumeric())
                    || rest.is_empty()
            })
        }) && !name.starts_with("random")
            && !name.starts_with("shm")
    })
}

/// Files of /dev that lose and hold nothing.
pub(crate) fn is_sink(path: &str) -> bool {
    matches!(path, "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/fd/1" | "/dev/fd/2")
}

/// Files of /dev that anyone may read.
pub(crate) fn is_source(path: &str) -> bool {
    matches!(path, "/dev/null" | "/dev/stdin" | "/dev/zero" | "/dev/urandom" | "/dev/random" | "/dev/fd/0")
}

/// Where the system keeps its own, and what every shell of a user reads when it starts.
pub(crate) fn is_system_place(path: &str, home: &str) -> bool {
    const SYSTEM: &[&str] = &[
        "/etc",
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/boot",
        "/opt",
        "/sys",
        "/proc/sys",
        "/var/lib",
        "/var/spool",
        "/System",
        "/Library",
    ];
    const STARTUP: &[&str] = &[
        ".bashrc",
        ".bash_profile",
        ".bash_login",
        ".bash_logout",
        ".profile",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".zlogin",
        ".kshrc",
        ".inputrc",
        ".gitconfig",
        ".config/git/config",
        ".config/fish/config.fish",
        ".config/autostart",
        ".config/systemd",
        ".xinitrc",
        ".xprofile",
        ".pam_environment",
        ".vimrc",
        ".tmux.conf",
        ".ssh/config",
        ".ssh/authorized_keys",
        ".ssh/rc",
        "Library/LaunchAgents",
    ];
    SYSTEM.iter().any(|s| inside(path, s))
        || below_home(path, home).is_some_and(|b| {
            let below = format!("/{b}");
            STARTUP.iter().any(|s| inside(&below, &format!("/{s}")))
        })
}

/// The parts of our own that nobody but a person changes, below any home.
const OWN: &[&str] = &[".config/countersign", ".local/state/countersign"];

/// Whether a path is, or lies in, what belongs to countersign itself.
pub(crate) fn is_protected(path: &str, home: &str, places: &[String]) -> bool {
    places.iter().any(|p| inside(path, p)) || own(home).any(|p| inside(path, &p)) || {
        let below = below_home(path, home).map(|b| format!("/{b}"));
        below.is_some_and(|b| OWN.iter().any(|o| inside(&b, &format!("/{o}"))))
            || path.starts_with("/run/user/") && path.split('/').nth(4) == Some("countersign")
    }
}

fn own(home: &str) -> impl Iterator<Item = String> + '_ {
    OWN.iter().map(move |o| format!("{}/{o}", home.trim_end_matches('/')))
}

/// How a glob stands to what is protected.
pub(crate) fn glob_meets_protected(glob: &str, home: &str, places: &[String]) -> Meets {
    let mut meets = Meets::No;
    for place in places.iter().cloned().chain(own(home)) {
        match glob_meets(glob, &place) {
            Meets::In => return Meets::In,
            Meets::Above => meets = Meets::Above,
            Meets::No => {}
        }
    }
    let generic = OWN.iter().any(|o| {
        let at = glob.find("/home/").map(|_| format!("/home/{}/{o}", glob.split('/').nth(2).unwrap_or_default()));
        at.is_some_and(|p| glob_meets(glob, &p) == Meets::In)
    });
    if generic { Meets::In } else { meets }
}

/// Whether something protected lies below a directory.
pub(crate) fn holds_protected(directory: &str, home: &str, places: &[String]) -> bool {
    places.iter().any(|p| inside(p, directory))
        || own(home).any(|p| inside(&p, directory))
        || below_home(directory, home).is_some_and(|b| {
            let below = if b.is_empty() { String::new() } else { format!("/{b}") };
            OWN.iter().any(|o| inside(&format!("/{o}"), &below) || below.is_empty())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_resolves_by_letters() {
        for (path, expect) in
            [("/a//b/./c/../d", "/a/b/d"), ("/", "/"), ("//", "/"), ("/..", "/"), ("/a/..", "/"), ("/a/b/", "/a/b")]
        {
            assert_eq!(clean(path), expect, "{path}");
        }
    }

    #[test]
    fn containment_goes_by_component() {
        assert!(inside("/work/proj/a", "/work/proj") && inside("/work/proj", "/work/proj/"));
        assert!(!inside("/work/proj2", "/work/proj") && !inside("/work", "/work/proj"));
        assert!(inside("/anything", "/"));
    }

    #[test]
    fn secrets_are_known_by_where_and_how_they_are_called() {
        for path in [
            "/home/dev/.ssh/id_ed25519",
            "/root/.aws/credentials",
            "/p/.env",
            "/p/.env.local",
            "/etc/shadow",
            "/proc/1/environ",
            "/p/certs/server.key",
            "/home/dev/.bash_history",
            "/etc/ssh/ssh_host_rsa_key",
        ] {
            assert!(is_credential(path, "/home/dev"), "{path}");
        }
        for path in [
            "/p/src/password.rs",
            "/p/.env.example",
            "/p/id_rsa.pub",
            "/home/dev/.bashrc",
            "/p/keys.rs",
            "/etc/passwd",
            "/home/dev/.ssh/known_hosts",
            "/p/docs/.environment",
        ] {
            assert!(!is_credential(path, "/home/dev"), "{path}");
        }
        assert!(
            covers_credentials("/", "/h")
                && covers_credentials("/home/x", "/h")
                && covers_credentials("/h/.config", "/h")
        );
        assert!(!covers_credentials("/work/proj", "/h") && !covers_credentials("/h/src", "/h"));
    }

    #[test]
    fn what_is_ours_is_protected_in_every_home() {
        for path in
            ["/home/x/.config/countersign/config.toml", "/h/.local/state/countersign", "/run/user/1000/countersign/a"]
        {
            assert!(is_protected(path, "/h", &[]), "{path}");
        }
        assert!(is_protected("/srv/house/keys/a", "/h", &["/srv/house".to_owned()]));
        assert!(!is_protected("/h/.config/other", "/h", &[]) && !is_protected("/h/.config/countersigned", "/h", &[]));
        assert_eq!(glob_meets_protected("/h/.config/*/config.toml", "/h", &[]), Meets::In);
        assert_eq!(glob_meets_protected("/h/.conf*", "/h", &[]), Meets::Above);
        assert_eq!(glob_meets_protected("/h/src/*", "/h", &[]), Meets::No);
    }
}
