//! The paths that a sandbox allows beside the roots. docs/security.md describes them.

/// Every confined task reads these and executes what is in them.
pub(super) const LIBRARIES: &[&str] = &["/lib", "/lib32", "/lib64", "/libx32"];
/// Every confined task reads these.
#[rustfmt::skip]
pub(super) const SYSTEM_PLACES: &[&str] = &["/proc", "/sys", "/run/utmp", "/var/lib/dpkg", "/var/lib/rpm", "/var/cache/fontconfig"];
/// The entries of /etc about names and display, without secrets.
#[rustfmt::skip]
pub(super) const ETC_NAMES: &[&str] = &[
    "passwd", "group", "nsswitch.conf", "hostname", "localtime", "timezone", "locale.alias", "default/locale",
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "os-release", "lsb-release", "debian_version",
    "alternatives", "bash.bashrc", "inputrc", "DIR_COLORS", "magic", "mime.types", "terminfo", "mtab", "gitattributes",
    "python3", "python3.11", "perl", "ssl/openssl.cnf", "ssl/certs", "ca-certificates", "pki/tls/certs",
];
/// More entries of /etc that a workspace task reads.
#[rustfmt::skip]
pub(super) const WORKSPACE_ETC_NAMES: &[&str] = &[
    "hosts", "host.conf", "resolv.conf", "services", "protocols", "networks", "gai.conf", "locale.conf", "redhat-release",
    "bashrc", "profile", "profile.d", "environment", "shells", "fstab", "fonts", "papersize",
    "ca-certificates.conf", "pki/ca-trust", "crypto-policies", "gitconfig", "apt", "java",
    "java-8-openjdk", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "maven", "gradle", "php", "ruby",
    "login.defs", "mke2fs.conf", "subuid", "subgid", "xdg", "protobuf", "vim",
];
/// Devices without data, which every confined task reads.
pub(super) const READ_DEVICES: &[&str] = &["/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Devices that a workspace task writes to.
pub(super) const WRITE_DEVICES: &[&str] = &["/dev/zero", "/dev/full", "/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/tty"];
/// Programs that read git's configuration to ignore the same files.
pub(super) const GIT_CONFIG_READERS: &[&str] =
    &["rg", "fd", "fdfind", "ag", "tokei", "scc", "delta", "bat", "batcat", "eza", "exa"];
/// Directories that toolchains in a home directory need beside themselves.
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
/// Caches of tools: a workspace task writes to them, and those of installed tools are created.
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
/// Settings in a home directory that a workspace task reads: tool configuration without tokens.
#[rustfmt::skip]
pub(super) const SETTINGS: &[&str] = &[
    ".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes", ".config/git/hooks", ".cargo/config.toml",
    ".cargo/config", ".cargo/env", ".editorconfig", ".prettierrc", ".eslintrc.json", ".config/ruff", ".config/black", ".config/mypy",
    ".config/flake8", ".config/pylintrc", ".pylintrc", ".clang-format", ".tool-versions", ".nvmrc", ".node-version",
    ".python-version", ".config/mise", ".asdfrc", ".m2/toolchains.xml", ".config/go/env", ".config/uv", ".config/rustfmt",
    ".config/nextest", ".jq", ".ripgreprc", ".config/fd",
];
/// Settings that often hold tokens: a workspace task reads them only if they contain none. Those outside of the home
/// directory are absolute paths.
#[rustfmt::skip]
pub(super) const SETTINGS_WITHOUT_SECRETS: &[&str] = &[
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".config/pip/pip.conf", ".pip/pip.conf", ".condarc", ".m2/settings.xml",
    ".gradle/gradle.properties", "/etc/pip.conf", "/etc/npmrc", "/usr/etc/npmrc",
];
/// Words that mark a secret in such a file.
pub(super) const SECRET_WORDS: &[&str] =
    &["auth", "token", "passw", "secret", "apikey", "api_key", "api-key", "credential", "private"];
/// Escape files: files that make programs run later, outside of the sandbox. Changes to them are recorded. A name that
/// ends in a slash is a directory, of which every entry counts.
#[rustfmt::skip]
pub(super) const ESCAPE_FILES: &[&str] = &[
    ".git/hooks/", ".git/config", ".git/config.worktree", ".git/info/attributes", ".envrc", ".vscode/", ".husky/", ".cargo/config", ".cargo/config.toml",
    "package.json", "Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", ".justfile", ".npmrc", "conftest.py", ".bashrc", ".profile", ".zshrc",
    ".bash_profile", ".bash_login", ".zshenv", ".zprofile", ".zlogin", "build.rs", "setup.py", ".gitattributes", ".pre-commit-config.yaml", ".github/workflows/",
];
/// The escape files of a git directory that lies outside of the root.
pub(super) const GIT_DIRECTORY_ESCAPE_FILES: &[&str] = &["hooks/", "config", "config.worktree", "info/attributes"];
