//! Paths as text: cleaning, containment, globs, and the locations that need care. Reads no files.

pub(crate) use countersign_model::glob_matches as matches;
pub(crate) use countersign_model::places::{
    base, below_home, clean, holds_protected, inside, is_credential, is_program_place, is_protected, own_places, parent,
};
use countersign_model::{
    PathKind, PathScope, PathTargetKind,
    places::{self, CREDENTIAL_DIRECTORIES, OWN},
    secret_names::{self, SecretNameKind},
};

/// `base/path`, or `path` when it is absolute.
pub(crate) fn join(base: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", base.trim_end_matches('/')) }
}

/// Whether a path is a program of the system.
pub(crate) fn is_system(path: &str) -> bool {
    const DIRECTORIES: &[&str] = &["/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    DIRECTORIES.contains(&parent(path)) && path.starts_with('/') && !path.contains("/../") && !path.contains("//")
}

/// Whether a directory tree contains secrets: by its location, by its name, or because it is git's own directory.
pub(crate) fn covers_credentials(directory: &str, home: &str) -> bool {
    places::covers_credentials(directory, home)
        || secret_names::is_secret_directory(directory)
        || base(directory) == ".git"
}

/// Whether a word that may be a file, a branch or plain text names a secret. It must look like a file name.
pub(crate) fn looks_like_secret(path: &str, home: &str) -> bool {
    secret_names::path_kind(path) == Some(SecretNameKind::File) || places::is_credential_place(path, home)
}

/// Whether reading a scope shows a secret. `found`: the kind of file there, if known.
pub(crate) fn shows_secrets(scope: &PathScope, found: Option<PathTargetKind>, path: &str, home: &str) -> bool {
    if scope.kind == PathKind::Name {
        return places::in_credential_directory(path, home);
    }
    let directory = match found {
        Some(PathTargetKind::Directory) => true,
        Some(PathTargetKind::File | PathTargetKind::Other) => false,
        Some(PathTargetKind::Absent) | None => scope.kind == PathKind::Directory || scope.walked.ends_with('/'),
    };
    if directory {
        return places::is_credential_directory(path, home);
    }
    // A recursive path of unknown kind may be a directory; a single plain word usually is one.
    let perhaps = scope.recursive && !matches!(found, Some(PathTargetKind::File | PathTargetKind::Other));
    match secret_names::path_kind(path) {
        Some(SecretNameKind::Word) if perhaps => places::is_credential_place(path, home),
        Some(_) => true,
        None => places::is_credential_place(path, home),
    }
}

/// Whether a glob is aimed at secrets, by the names that it can match or by its directory.
pub(crate) fn glob_aims_at_credentials(glob: &str, home: &str) -> bool {
    let last = base(glob);
    secret_names::aims_at_secrets(glob)
        || places::is_credential_place(&clean(&format!("{}/x", parent(glob))), home)
        || below_home(&clean(parent(glob)), home).is_some_and(|below| {
            let below = format!("/{below}");
            CREDENTIAL_DIRECTORIES.iter().any(|d| {
                let at = format!("/{d}");
                last.contains(|c: char| c.is_alphanumeric())
                    && parent(&at) == if below == "/" { "/" } else { below.trim_end_matches('/') }
                    && matches(last, base(&at))
            })
        })
}

/// How a glob relates to a path: it may match the path or something below it, or only a directory above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlobOverlap {
    No,
    Above,
    In,
}

pub(crate) fn glob_overlap(glob: &str, place: &str) -> GlobOverlap {
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
            Some(_) => return GlobOverlap::No,
            None => return GlobOverlap::In,
        }
    }
    if place.next().is_none() { GlobOverlap::In } else { GlobOverlap::Above }
}

/// Whether a path is a block device or a name for one.
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

/// Files of `/dev` that discard or display what is written to them.
pub(crate) fn is_sink(path: &str) -> bool {
    matches!(path, "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/fd/1" | "/dev/fd/2")
}

/// Files of `/dev` that may be read without approval.
pub(crate) fn is_source(path: &str) -> bool {
    matches!(path, "/dev/null" | "/dev/stdin" | "/dev/zero" | "/dev/urandom" | "/dev/random" | "/dev/fd/0")
}

/// System directories, and files that a user's shells and tools read at start.
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

/// How a glob relates to the protected paths.
pub(crate) fn protected_overlap(glob: &str, home: &str, places: &[String]) -> GlobOverlap {
    let mut meets = GlobOverlap::No;
    for place in places.iter().cloned().chain(own_places(home)) {
        match glob_overlap(glob, &place) {
            GlobOverlap::In => return GlobOverlap::In,
            GlobOverlap::Above => meets = GlobOverlap::Above,
            GlobOverlap::No => {}
        }
    }
    let generic = OWN.iter().any(|o| {
        let at = glob.find("/home/").map(|_| format!("/home/{}/{o}", glob.split('/').nth(2).unwrap_or_default()));
        at.is_some_and(|p| glob_overlap(glob, &p) == GlobOverlap::In)
    });
    if generic { GlobOverlap::In } else { meets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_are_protected_in_every_home() {
        for path in
            ["/home/x/.config/countersign/config.toml", "/h/.local/state/countersign", "/run/user/1000/countersign/a"]
        {
            assert!(is_protected(path, "/h", &[]), "{path}");
        }
        assert!(is_protected("/srv/csn/keys/a", "/h", &["/srv/csn".to_owned()]));
        assert!(!is_protected("/h/.config/other", "/h", &[]) && !is_protected("/h/.config/countersigned", "/h", &[]));
        assert_eq!(protected_overlap("/h/.config/*/config.toml", "/h", &[]), GlobOverlap::In);
        assert_eq!(protected_overlap("/h/.conf*", "/h", &[]), GlobOverlap::Above);
        assert_eq!(protected_overlap("/h/src/*", "/h", &[]), GlobOverlap::No);
    }
}
