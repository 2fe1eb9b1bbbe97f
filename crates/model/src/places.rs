//! Paths compared as text: which path lies in which, and where credentials, toolchains and Countersign's own files are.
//! The gate judges by these tables and the shim builds the sandbox from them.
//!
//! A `home` argument may name several directories, separated by colons as in PATH: one home under a link and under its
//! real name, that of the requesting user and that of the daemon's user.

use crate::secret_names::{self, SecretNameKind};

/// Resolves `.`, `..` and double slashes without access to the file system.
#[must_use]
pub fn clean(path: &str) -> String {
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

/// Whether a clean path is this directory or lies in it, component by component.
#[must_use]
pub fn inside(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[must_use]
pub fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(n) => &path[..n],
    }
}

#[must_use]
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Where the system has its programs.
pub const PROGRAM_PLACES: &[&str] =
    &["/usr", "/bin", "/sbin", "/opt", "/nix/store", "/snap", "/lib", "/run/current-system"];
/// Where toolchains in a home directory have their programs.
#[rustfmt::skip]
pub const TOOLCHAINS: &[&str] = &[
    ".cargo/bin", ".rustup", ".local/bin", ".local/share/mise", ".local/share/fnm", ".nvm", ".fnm", ".volta", ".asdf",
    ".pyenv", ".rbenv", ".rvm", ".sdkman", ".goenv", "go/bin", "sdk/go", ".bun/bin", ".deno/bin", ".npm-global/bin",
    ".yarn/bin", ".pnpm", ".local/share/pnpm", ".dotnet", ".poetry/bin", ".rye", ".juliaup/bin", ".ghcup/bin", ".opam",
    ".krew/bin", ".pulumi/bin", ".nix-profile/bin", ".gem", ".elan/bin", ".foundry/bin", ".linuxbrew", "bin",
];

/// Whether a program at this path is the one that its name says, because the system or a toolchain installed it.
#[must_use]
pub fn is_program_place(path: &str, home: &str) -> bool {
    let path = clean(path);
    PROGRAM_PLACES.iter().any(|place| inside(&path, place))
        || below_home(&path, home).is_some_and(|below| TOOLCHAINS.iter().any(|t| inside(below, t)))
}

fn each_home(homes: &str) -> impl Iterator<Item = &str> {
    homes.split(':').filter(|home| home.len() > 1)
}

/// The part of a path below a home directory of any user; empty for the home directory itself.
#[must_use]
pub fn below_home<'p>(path: &'p str, home: &str) -> Option<&'p str> {
    let rest = |dir: &str| {
        path.strip_prefix(dir).filter(|r| r.is_empty() || r.starts_with('/')).map(|r| r.trim_start_matches('/'))
    };
    if let Some(rest) = each_home(home).find_map(rest) {
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
pub const CREDENTIAL_DIRECTORIES: &[&str] = &[
    ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub",
    ".config/op", ".config/doctl", ".config/rclone", ".config/sops", ".config/age", ".config/containers", ".docker",
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".mozilla", ".config/google-chrome",
    ".config/chromium", ".config/BraveSoftware", ".thunderbird", ".terraform.d", ".oci", ".bluemix", ".minikube",
    ".vagrant.d", ".chef", ".config/heroku", ".step", ".electrum", ".bitcoin", ".ethereum", ".claude", ".codex",
    "Library/Keychains", ".pki",
];
/// Files of a home that hold keys, tokens and histories.
#[rustfmt::skip]
const CREDENTIAL_FILES: &[&str] = &[
    ".netrc", "_netrc", ".git-credentials", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".pgpass", ".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto",
    ".vault-token", ".config/git/credentials", ".config/pip/pip.conf", ".composer/auth.json", ".m2/settings.xml",
    ".gradle/gradle.properties", ".nuget/NuGet/NuGet.Config", ".bash_history", ".zsh_history", ".history",
    ".python_history", ".node_repl_history", ".mysql_history", ".psql_history", ".sqlite_history", ".lesshst",
    ".viminfo", ".rediscli_history", ".irb_history", ".fish_history", ".local/share/fish/fish_history", ".Xauthority",
    ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".huggingface/token", ".ICEauthority", ".smbcredentials", ".msmtprc", ".fetchmailrc", ".claude.json", ".databrickscfg", ".dockercfg",
];
/// Places of the system that hold keys and tokens, with everything below them.
#[rustfmt::skip]
const CREDENTIAL_PLACES: &[&str] = &[
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/krb5.keytab", "/etc/kubernetes",
    "/etc/security/opasswd", "/etc/ppp", "/etc/wireguard", "/etc/openvpn", "/etc/NetworkManager/system-connections",
    "/etc/rancher", "/etc/docker", "/run/secrets", "/var/run/secrets", "/var/lib/docker", "/var/lib/kubelet",
    "/proc/kcore", "/dev/mem", "/dev/kmem", "/var/spool/cron", "/var/lib/secrets", "/etc/cloud", "/etc/machine-id",
];
/// Directories that hold credentials wherever they are.
const CREDENTIAL_DIRECTORIES_ANYWHERE: &[&str] = &[
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

/// Whether reading this file would reveal a secret, judged by its place or its name.
#[must_use]
pub fn is_credential(path: &str, home: &str) -> bool {
    is_credential_place(path, home) || secret_names::path_kind(path).is_some()
}

/// Whether a path is, or lies in, a directory of keys and tokens. Listing its names needs an approval too.
#[must_use]
pub fn in_credential_directory(path: &str, home: &str) -> bool {
    let within = |place: &&str| {
        path.match_indices(*place).any(|(at, _)| {
            path[..at].ends_with('/') && matches!(path.as_bytes().get(at + place.len()), None | Some(b'/'))
        })
    };
    CREDENTIAL_PLACES.iter().any(|p| inside(path, p))
        || below_home(path, home).is_some_and(|below| CREDENTIAL_DIRECTORIES.iter().any(|d| inside(below, d)))
        // Hardly any path has a hidden component, so this cheap test avoids the search.
        || path.contains("/.") && CREDENTIAL_DIRECTORIES_ANYWHERE.iter().any(within)
}

/// Whether a path lies where keys, tokens and histories are stored.
#[must_use]
pub fn is_credential_place(path: &str, home: &str) -> bool {
    if CREDENTIAL_PLACES.iter().any(|p| inside(path, p)) {
        return true;
    }
    if let Some(rest) = path.strip_prefix("/proc/") {
        return rest.ends_with("/environ") || rest.ends_with("/mem") || rest.contains("/fd/");
    }
    if path.starts_with("/etc/ssh/ssh_host_") {
        return !path.ends_with(".pub");
    }
    let ends = |place: &&str| path.strip_suffix(*place).is_some_and(|before| before.ends_with('/'));
    let in_place = in_credential_directory(path, home)
        || below_home(path, home).is_some_and(|below| CREDENTIAL_FILES.contains(&below))
        || path.contains("/.") && CREDENTIAL_FILES.iter().any(ends);
    in_place && !path.ends_with(".pub") && !path.ends_with("/known_hosts")
}

/// Whether a directory at this path holds nothing but credentials. A directory named `token` or `credentials` usually
/// holds source code, and the entries of one named `secrets` are judged one by one.
#[must_use]
pub fn is_credential_directory(path: &str, home: &str) -> bool {
    is_credential_place(path, home) || secret_names::name_kind(base(path)) == Some(SecretNameKind::File)
}

/// Whether the sandbox hides this directory entry from a task that only reads: everything that the gate would ask
/// about, except files that git itself must read.
#[must_use]
pub fn is_hidden_from_readers(path: &str, home: &str, directory: bool) -> bool {
    if directory {
        is_credential_directory(path, home)
    } else {
        is_credential(path, home) && !secret_names::stays_readable(path)
    }
}

/// Whether a file of this name holds a secret, wherever it is; copies and capitals count too.
#[must_use]
pub fn is_credential_name(name: &str) -> bool {
    secret_names::name_kind(name).is_some()
}

/// Whether the sandbox cannot open a directory as a whole: something below it holds credentials or belongs to
/// Countersign, or it contains a home directory.
#[must_use]
pub fn is_delicate(directory: &str, home: &str, protected: &[String]) -> bool {
    covers_credentials(directory, home)
        || secret_names::in_secret_directory(directory)
        || CREDENTIAL_PLACES.iter().any(|p| inside(p, directory))
        || each_home(home).any(|home| inside(home, directory))
        || holds_protected(directory, home, protected)
}

/// Whether a directory holds credential directories somewhere below.
#[must_use]
pub fn covers_credentials(directory: &str, home: &str) -> bool {
    if matches!(directory, "/" | "/home" | "/Users" | "/etc" | "/proc" | "/var" | "/run" | "/var/run" | "/root") {
        return true;
    }
    match below_home(directory, home) {
        Some("") => true,
        Some(below) => CREDENTIAL_DIRECTORIES.iter().chain(CREDENTIAL_FILES).any(|c| inside(c, below)),
        None => false,
    }
}

/// Countersign's own directories below any home. Only a person changes them.
pub const OWN: &[&str] = &[".config/countersign", ".local/state/countersign"];

/// Whether a path belongs to Countersign itself.
#[must_use]
pub fn is_protected(path: &str, home: &str, places: &[String]) -> bool {
    places.iter().any(|p| inside(path, p))
        || below_home(path, home).is_some_and(|below| OWN.iter().any(|o| inside(below, o)))
        || home == "/" && own_places(home).any(|p| inside(path, &p))
        || path.starts_with("/run/user/") && path.split('/').nth(4) == Some("countersign")
}

pub fn own_places(home: &str) -> impl Iterator<Item = String> + '_ {
    home.split(':').flat_map(|home| OWN.iter().map(move |o| format!("{}/{o}", home.trim_end_matches('/'))))
}

/// Whether something of Countersign lies below a directory.
#[must_use]
pub fn holds_protected(directory: &str, home: &str, places: &[String]) -> bool {
    places.iter().any(|p| inside(p, directory))
        || below_home(directory, home).is_some_and(|b| b.is_empty() || OWN.iter().any(|o| inside(o, b)))
        || each_home(home).any(|home| inside(home, directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_resolves_dots_and_double_slashes() {
        for (path, expect) in
            [("/a//b/./c/../d", "/a/b/d"), ("/", "/"), ("//", "/"), ("/..", "/"), ("/a/..", "/"), ("/a/b/", "/a/b")]
        {
            assert_eq!(clean(path), expect, "{path}");
        }
    }

    #[test]
    fn a_home_may_have_several_names() {
        let homes = "/home/link:/data/real/me";
        assert_eq!(below_home("/data/real/me/.ssh/id", homes), Some(".ssh/id"));
        assert!(is_credential("/data/real/me/.ssh/id", homes) && is_credential("/home/link/.netrc", homes));
        assert!(is_delicate("/data/real", homes, &[]) && is_delicate("/data/real/me", homes, &[]));
        assert!(!is_delicate("/data/other", homes, &[]) && below_home("/x", "/").is_none());
        assert!(is_protected("/data/real/me/.config/countersign/x", homes, &[]));
        assert_eq!(own_places(homes).count(), 4);
    }

    #[test]
    fn the_sandbox_hides_credentials_and_git_still_works() {
        for path in ["/p/.env", "/p/token.txt", "/p/id_rsa_old", "/p/secrets/app.yaml", "/p/secrets/prod", "/p/token"] {
            assert!(is_hidden_from_readers(path, "/h", false) && is_credential(path, "/h"), "{path}");
        }
        // git reads its configuration wherever the repository is.
        for path in
            ["/p/.git/config", "/w/secrets/repo/.git/config", "/w/secrets/repo/.git/index", "/p/secrets/main.go"]
        {
            assert!(!is_hidden_from_readers(path, "/h", false), "{path}");
        }
        assert!(is_credential("/p/.git/config", "/h"));
        for directory in ["/p/token", "/p/credentials", "/p/secrets", "/p/secrets/prod", "/p/.git", "/p/auth"] {
            assert!(!is_hidden_from_readers(directory, "/h", true), "{directory}");
        }
        assert!(is_hidden_from_readers("/p/.ssh", "/h", true) && is_hidden_from_readers("/p/.env", "/h", true));
        // The sandbox opens it entry by entry, without its credentials.
        assert!(is_delicate("/p/secrets", "/h", &[]) && is_delicate("/p/secrets/prod", "/h", &[]));
        assert!(!is_delicate("/w/secrets/repo/.git", "/h", &[]) && !is_delicate("/p/src", "/h", &[]));
    }

    #[test]
    fn containment_compares_whole_components() {
        assert!(inside("/work/proj/a", "/work/proj") && inside("/work/proj", "/work/proj/"));
        assert!(!inside("/work/proj2", "/work/proj") && !inside("/work", "/work/proj"));
        assert!(inside("/anything", "/"));
    }

    #[test]
    fn credentials_are_recognised_by_place_and_by_name() {
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
}
