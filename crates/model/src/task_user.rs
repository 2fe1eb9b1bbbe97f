//! A user of the machine that the system service runs tasks as.

use serde::{Deserialize, Serialize};

/// An entry of the system's user table. Without the system service, tasks run as the daemon's own user and need none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUser {
    pub uid: u32,
    pub gid: u32,
    /// All groups, with the primary one.
    pub groups: Vec<u32>,
    pub name: String,
    pub home: String,
    pub shell: String,
}

impl TaskUser {
    /// Finds a user in the texts of `/etc/passwd` and `/etc/group`. Lines that cannot be parsed are ignored.
    #[must_use]
    pub fn find(uid: u32, passwd: &str, group: &str) -> Option<Self> {
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let user = passwd.lines().map(fields).find(|f| f.len() >= 7 && f[2].parse() == Ok(uid))?;
        let gid: u32 = user[3].parse().ok()?;
        let (name, home) = (user[0].clone(), user[5].clone());
        if name.is_empty() || !home.starts_with('/') {
            return None;
        }
        let is_in = |f: &Vec<String>| f.len() >= 4 && f[3].split(',').any(|member| member == name);
        let mut groups: Vec<u32> = group.lines().map(fields).filter(is_in).filter_map(|f| f[2].parse().ok()).collect();
        groups.push(gid);
        groups.sort_unstable();
        groups.dedup();
        Some(Self { uid, gid, groups, name, home, shell: user[6].clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_with_their_groups_and_malformed_lines_are_ignored() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n# note\nann:x:1000:1000:Ann,,,:/home/ann:/bin/zsh\nodd:x:1001\n\
                      nohome:x:1002:1002:::/bin/sh\nrel:x:1003:1003::home:/bin/sh\n";
        let group = "root:x:0:\ndocker:x:998:bob,ann\nannex:x:50:annex\nann:x:1000:\nbad:x:zz:ann\n";
        let ann = TaskUser::find(1000, passwd, group).unwrap();
        assert_eq!((ann.name.as_str(), ann.home.as_str(), ann.shell.as_str()), ("ann", "/home/ann", "/bin/zsh"));
        assert_eq!((ann.gid, ann.groups), (1000, vec![998, 1000]));
        for nobody in [1001, 1002, 1003, 4242] {
            assert_eq!(TaskUser::find(nobody, passwd, group), None);
        }
    }
}
