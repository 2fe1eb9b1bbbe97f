//! The directories of a terminal's program: the one that the kernel reports, and the one that the program claims.
//! Pure: others look, this says what is new.

/// A directory that the record does not have yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DirectoryChange {
    pub(crate) path: String,
    /// The program said so in its output (OSC 7). Any program can print that, so nothing may rely on it.
    pub(crate) claimed: bool,
}

pub(crate) struct Directories {
    /// What the kernel reported last.
    actual: String,
    /// What the record named last: a claim that repeats it says nothing new.
    recorded: String,
}

impl Directories {
    pub(crate) fn new(start: &str) -> Self {
        Self { actual: start.to_owned(), recorded: start.to_owned() }
    }

    /// What is new. The kernel's word comes first: a program that claims where it really is adds nothing to it.
    pub(crate) fn update(&mut self, actual: Option<String>, claim: Option<String>) -> Vec<DirectoryChange> {
        let mut news = Vec::new();
        if let Some(path) = actual.filter(|path| *path != self.actual) {
            self.actual.clone_from(&path);
            self.recorded.clone_from(&path);
            news.push(DirectoryChange { path, claimed: false });
        }
        if let Some(path) = claim.filter(|path| *path != self.recorded) {
            self.recorded.clone_from(&path);
            news.push(DirectoryChange { path, claimed: true });
        }
        news
    }
}

/// The path in `file://HOST/PATH`, with its escapes undone, if the host is this machine.
pub(crate) fn path_of_url(url: &str, hostname: &str) -> Option<String> {
    let rest = url.strip_prefix("file://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    let ours = ["", "localhost", hostname].iter().any(|name| host.eq_ignore_ascii_case(name));
    if !ours {
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
    fn only_this_machine_is_believed() {
        let check = |url: &str, expect: Option<&str>| assert_eq!(path_of_url(url, "box").as_deref(), expect, "{url}");
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

    /// Each step: what the kernel reports, what the program claims, what is then new (`!` before a claim).
    #[test]
    fn the_kernel_is_followed_whatever_a_program_claims() {
        type Step = (Option<&'static str>, Option<&'static str>, &'static [&'static str]);
        let check = |steps: &[Step]| {
            let mut directories = Directories::new("/w");
            for (n, (actual, claim, expect)) in steps.iter().enumerate() {
                let news = directories.update(actual.map(str::to_owned), claim.map(str::to_owned));
                let shown: Vec<String> =
                    news.into_iter().map(|m| format!("{}{}", if m.claimed { "!" } else { "" }, m.path)).collect();
                assert_eq!(shown, *expect, "step {n} of {steps:?}");
            }
        };
        // A shell that tells the truth.
        check(&[(Some("/w"), Some("/w"), &[]), (Some("/usr"), Some("/usr"), &["/usr"]), (None, Some("/usr"), &[])]);
        // One that lies, once and again, and moves meanwhile.
        check(&[
            (Some("/w"), Some("/srv"), &["!/srv"]),
            (Some("/w"), Some("/srv"), &[]),
            (Some("/usr"), None, &["/usr"]),
            (Some("/usr"), Some("/srv"), &["!/srv"]),
            (Some("/w"), Some("/srv"), &["/w", "!/srv"]),
            (Some("/w"), Some("/w"), &["!/w"]),
        ]);
        // A program of another user, about which the kernel tells nothing.
        check(&[(None, Some("/root"), &["!/root"]), (None, Some("/w"), &["!/w"]), (Some("/w"), None, &[])]);
    }
}
