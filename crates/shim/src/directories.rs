//! The working directory of a terminal's program: the one that the kernel reports, and the one that the program claims.
//! Does no I/O: callers supply both, this module decides what is new.

/// A directory that the record does not have yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DirectoryChange {
    pub(crate) path: String,
    /// The program printed it (OSC 7). Any program can print any path, so nothing may rely on it.
    pub(crate) claimed: bool,
}

pub(crate) struct Directories {
    /// The directory that the kernel reported last.
    actual: String,
    /// The directory that was recorded last: a claim that repeats it is not new.
    recorded: String,
}

impl Directories {
    pub(crate) fn new(start: &str) -> Self {
        Self { actual: start.to_owned(), recorded: start.to_owned() }
    }

    /// Returns the changes to record. The kernel's report comes first, so a claim that agrees with it adds nothing.
    pub(crate) fn update(&mut self, actual: Option<String>, claim: Option<String>) -> Vec<DirectoryChange> {
        let mut changes = Vec::new();
        if let Some(path) = actual.filter(|path| *path != self.actual) {
            self.actual.clone_from(&path);
            self.recorded.clone_from(&path);
            changes.push(DirectoryChange { path, claimed: false });
        }
        if let Some(path) = claim.filter(|path| *path != self.recorded) {
            self.recorded.clone_from(&path);
            changes.push(DirectoryChange { path, claimed: true });
        }
        changes
    }
}

/// The decoded path of `file://HOST/PATH`, if the host is this machine.
pub(crate) fn path_from_url(url: &str, hostname: &str) -> Option<String> {
    let rest = url.strip_prefix("file://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    let is_this_host = ["", "localhost", hostname].iter().any(|name| host.eq_ignore_ascii_case(name));
    if !is_this_host {
        return None;
    }
    let (mut out, mut bytes) = (Vec::new(), path.bytes());
    while let Some(b) = bytes.next() {
        match b {
            b'%' => {
                let digit = |b: Option<u8>| char::from(b?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            b => out.push(b),
        }
    }
    String::from_utf8(out).ok().filter(|path| !path.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_another_host_is_ignored() {
        let check = |url: &str, expect: Option<&str>| assert_eq!(path_from_url(url, "box").as_deref(), expect, "{url}");
        check("file:///srv/a", Some("/srv/a"));
        check("file://localhost/srv/a", Some("/srv/a"));
        check("file://box/srv/a%20b%3Bc", Some("/srv/a b;c"));
        check("file://BOX/srv", Some("/srv"));
        check("file://other/srv/a", None);
        check("file://box.example.org/srv", None);
        check("file://boxer/srv", None);
        check("file://user@box/srv", None);
        check("file://box%2e/srv", None);
        check("file://box", None);
        check("file://box/%zz", None);
        check("file://box/a%00b", None);
        check("file://box/%ff", None);
        check("http://box/srv", None);
        check("/srv", None);
    }

    /// Each step: what the kernel reports, what the program claims, the changes to record (`!` before a claim).
    #[test]
    fn claims_never_replace_what_the_kernel_reports() {
        type Step = (Option<&'static str>, Option<&'static str>, &'static [&'static str]);
        let check = |steps: &[Step]| {
            let mut directories = Directories::new("/w");
            for (n, (actual, claim, expect)) in steps.iter().enumerate() {
                let changes = directories.update(actual.map(str::to_owned), claim.map(str::to_owned));
                let shown: Vec<String> =
                    changes.into_iter().map(|m| format!("{}{}", if m.claimed { "!" } else { "" }, m.path)).collect();
                assert_eq!(shown, *expect, "step {n} of {steps:?}");
            }
        };
        // A shell that claims where it is.
        check(&[(Some("/w"), Some("/w"), &[]), (Some("/usr"), Some("/usr"), &["/usr"]), (None, Some("/usr"), &[])]);
        // A shell that makes false claims, and changes its directory in between.
        check(&[
            (Some("/w"), Some("/srv"), &["!/srv"]),
            (Some("/w"), Some("/srv"), &[]),
            (Some("/usr"), None, &["/usr"]),
            (Some("/usr"), Some("/srv"), &["!/srv"]),
            (Some("/w"), Some("/srv"), &["/w", "!/srv"]),
            (Some("/w"), Some("/w"), &["!/w"]),
        ]);
        // A program of another user, about which the kernel reports nothing.
        check(&[(None, Some("/root"), &["!/root"]), (None, Some("/w"), &["!/w"]), (Some("/w"), None, &[])]);
    }
}
