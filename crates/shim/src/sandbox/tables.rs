//! What lies within the walls, beside the roots. docs/security.md says the same in words.

/// Read by every confined task, with what the system keeps there to be executed.
pub(super) const LIBRARIES: &[&str] = &["/lib", "/lib32", "/lib64", "/libx32"];
/// Read by every confined task.
#[rustfmt::skip]
pub(super) const SYSTEM: &[&str] = &["/proc", "/sys", "/run/utmp", "/var/lib/dpkg", "/var/lib/rpm", "/var/cache/fontconfig"];
/// The part of /etc that says how things are called and shown, and holds no secret.
#[rustfmt::skip]
pub(super) const ETC: &[&str] = &[
    "passwd", "group", "nsswitch.conf", "hostname", "localtime", "timezone", "locale.alias", "default/locale",
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "os-release", "lsb-release", "debian_version",
    "alternatives", "bash.bashrc", "inputrc", "DIR_COLORS", "magic", "mime.types", "terminfo", "mtab", "gitattributes",
    "python3", "python3.11", "perl", "ssl/openssl.cnf", "ssl/certs", "ca-certificates", "pki/tls/certs",
];
/// What a workspace reads of /etc in addition.
#[rustfmt::skip]
pub(super) const ETC_OF_WORKSPACES: &[&str] = &[
    "hosts", "host.conf", "resolv.conf", "services", "protocols", "networks", "gai.conf", "locale.conf", "redhat-release",
    "bashrc", "profile", "profile.d", "environment", "shells", "fstab", "fonts", "papersize",
    "ca-certificates.conf", "pki/ca-trust", "crypto-policies", "gitconfig", "apt", "java",
    "java-8-openjdk", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "maven", "gradle", "php", "ruby",
    "login.defs", "mke2fs.conf", "subuid", "subgid", "xdg", "protobuf", "vim",
];
/// Devices that hold nothing: read.
pub(super) const SOURCES: &[&str] = &["/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Devices that a workspace writes to.
pub(super) const DEVICES: &[&str] = &["/dev/zero", "/dev/full", "/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/tty"];
/// Programs that read git's configuration, for what it ignores.
pub(super) const LIKE_GIT: &[&str] =
    &["rg", "fd", "fdfind", "ag", "tokei", "scc", "delta", "bat", "batcat", "eza", "exa"];
/// Directories that programs in these toolchains of a home need beside themselves.
pub(super) const COMPANIONS: &[(&str, &[&str])] = &[
    (".cargo/bin", &[".rustup"]),
    (
        ".local/bin",
        &[
            ".local/share/uv/tools",
            ".local/share/uv/python",
            ".local/share/pipx/venvs",
            ".local/pipx/venvs",
            ".local/lib",
        ],
    ),
    (".bun/bin", &[".bun/install/global"]),
    (".yarn/bin", &[".config/yarn/global"]),
    ("go/bin", &["sdk"]),
];
/// Where tools of a workspace keep what they have fetched: written, and made for those that are installed.
#[rustfmt::skip]
pub(super) const CACHES: &[(&str, &[&str])] = &[
    ("", &[".cache", ".ccache", ".sccache"]),
    ("cargo", &[".cargo/registry", ".cargo/git", ".cargo/.package-cache", ".cargo/.package-cache-mutate", ".cargo/.global-cache"]),
    ("npm", &[".npm"]),
    ("yarn", &[".yarn/cache", ".yarn/berry"]),
    ("pnpm", &[".pnpm-store", ".local/share/pnpm/store", ".local/state/pnpm"]),
    ("bun", &[".bun/install/cache"]),
    ("go", &["go/pkg"]),
    ("gradle", &[".gradle/caches", ".gradle/wrapper", ".gradle/daemon", ".gradle/native", ".gradle/notifications"]),
    ("mvn", &[".m2/repository", ".m2/wrapper"]),
    ("dotnet", &[".nuget/packages", ".local/share/NuGet"]),
    ("composer", &[".composer/cache"]),
    ("bundle", &[".bundle/cache"]),
    ("dart", &[".pub-cache"]),
    ("sbt", &[".ivy2/cache", ".sbt/boot"]),
    ("conan", &[".conan2/p"]),
];
/// What else a workspace reads in a home: how tools are set up, without what holds tokens.
#[rustfmt::skip]
pub(super) const SETTINGS: &[&str] = &[
    ".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes", ".config/git/hooks", ".cargo/config.toml",
    ".cargo/config", ".cargo/env", ".editorconfig", ".prettierrc", ".eslintrc.json", ".config/ruff", ".config/black", ".config/mypy",
    ".config/flake8", ".config/pylintrc", ".pylintrc", ".clang-format", ".tool-versions", ".nvmrc", ".node-version",
    ".python-version", ".config/mise", ".asdfrc", ".m2/toolchains.xml", ".config/go/env", ".config/uv", ".config/rustfmt",
    ".config/nextest", ".jq", ".ripgreprc", ".config/fd",
];
/// Files of a home that often hold tokens: read by a workspace only where they do not. `/etc/pip.conf` and such are named in
/// full.
#[rustfmt::skip]
pub(super) const IF_PLAIN: &[&str] = &[
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".config/pip/pip.conf", ".pip/pip.conf", ".condarc", ".m2/settings.xml",
    ".gradle/gradle.properties", "/etc/pip.conf", "/etc/npmrc", "/usr/etc/npmrc",
];
/// Words that speak of a secret in such a file.
pub(super) const SECRET_WORDS: &[&str] =
    &["auth", "token", "passw", "secret", "apikey", "api_key", "api-key", "credential", "private"];
/// Files that make programs run later, for whoever comes: changes to them are noted. A name with a slash at its end is a
/// directory, of which every entry counts.
#[rustfmt::skip]
pub(super) const ESCAPES: &[&str] = &[
    ".git/hooks/", ".git/config", ".git/config.worktree", ".git/info/attributes", ".envrc", ".vscode/", ".husky/", ".cargo/config", ".cargo/config.toml",
    "package.json", "Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", ".justfile", ".npmrc", "conftest.py", ".bashrc", ".profile", ".zshrc",
    ".bash_profile", ".bash_login", ".zshenv", ".zprofile", ".zlogin", "build.rs", "setup.py", ".gitattributes", ".pre-commit-config.yaml", ".github/workflows/",
];
/// The same in a git directory that lies elsewhere.
pub(super) const ESCAPES_OF_GIT: &[&str] = &["hooks/", "config", "config.worktree", "info/attributes"];
