//! Paths by their letters: cleaning, containment, globs, and the places that need care wherever they are reached.

pub(crate) use countersign_model::glob_matches as matches;
use countersign_model::places::{CREDENTIAL_DIRECTORIES, CREDENTIAL_NAMES, OWN, SAMPLES};
pub(crate) use countersign_model::places::{
    base, below_home, clean, covers_credentials, holds_protected, inside, is_credential, is_credential_name,
    is_protected, keeps_programs, own, parent,
};

/// `base/path`, or `path` when it is absolute.
pub(crate) fn join(base: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", base.trim_end_matches('/')) }
}

/// A program at this path is the system's own.
pub(crate) fn is_system(path: &str) -> bool {
    const DIRECTORIES: &[&str] = &["/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    DIRECTORIES.contains(&parent(path)) && path.starts_with('/') && !path.contains("/../") && !path.contains("//")
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

#[cfg(test)]
mod tests {
    use super::*;

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
