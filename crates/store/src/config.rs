//! `config.toml`: the operator's settings. The daemon does not start with unknown keys or bad values; the error names
//! the line.

use countersign_model::{GrantedSandbox, Kernel, Limits, Network, Profile, RedactionRule, Rule};
use serde::Deserialize;
use std::{io, path::PathBuf};
use toml::Spanned;

/// The configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How often the daemon asks for an approval.
    pub profile: Profile,
    pub limits: LimitsConfig,
    pub retention: RetentionConfig,
    /// Directories that may be read without an approval, in addition to the repository of a request.
    pub roots: Vec<String>,
    pub audience: AudienceConfig,
    pub confine: ConfineConfig,
    pub redact: RedactConfig,
    pub shutdown: ShutdownConfig,
    pub approvals: ApprovalsConfig,
    pub http: HttpConfig,
    /// The operator's rules, and additional hard denies.
    pub rules: Vec<Spanned<Rule>>,
    pub hard_deny: Vec<Spanned<Rule>>,
    /// The line on which each rule, deny and redaction rule starts.
    #[serde(skip)]
    lines: [Vec<usize>; 3],
}

/// Redaction rules in addition to the built-in ones.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedactConfig {
    pub rules: Vec<Spanned<RedactionRule>>,
}

/// What happens to running tasks when the daemon stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownConfig {
    pub tasks: TasksAtStop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TasksAtStop {
    /// They keep running, and the next daemon finds them.
    #[default]
    Keep,
    Stop,
}

/// How long connections may keep the daemon waiting, and how many may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// How long the head of a request may take, and how long an idle connection may stay open.
    pub header_timeout_ms: u64,
    /// How long the body of a request may take.
    pub body_timeout_ms: u64,
    /// How long a client may read nothing of its answer before the daemon drops it.
    pub stall_timeout_ms: u64,
    /// The maximum number of open loopback connections with a token; a quarter of them is reserved for people.
    pub connections: usize,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { header_timeout_ms: 15_000, body_timeout_ms: 30_000, stall_timeout_ms: 60_000, connections: 512 }
    }
}

/// How approvals may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsConfig {
    pub in_band: InBandAnswers,
}

/// What an agent's own client may answer on behalf of the person who uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InBandAnswers {
    /// Approve once, or deny.
    #[default]
    Once,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AudienceConfig {
    pub personal: ReadingConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadingConfig {
    pub read: UnaskedReads,
}

/// What may be read without an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnaskedReads {
    /// Files below the workspace roots.
    #[default]
    Roots,
    /// All files except places that hold credentials.
    All,
}

/// What the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfineConfig {
    /// The sandbox of granted and approved commands: `narrow` (the narrowest one that their risks allow), `workspace`
    /// (never a wider one) or `shield` (none).
    pub granted: GrantedSandbox,
    /// The network access of a task in a workspace sandbox.
    pub network: Network,
    /// The newest Landlock version to use, to test the behaviour on an older kernel.
    pub landlock: u32,
}

impl Default for ConfineConfig {
    fn default() -> Self {
        Self { granted: GrantedSandbox::Narrow, network: Network::Open, landlock: Kernel::FULL.landlock }
    }
}

impl ConfineConfig {
    /// The features to use, of those that the kernel has.
    #[must_use]
    pub fn kernel(&self, has: Kernel) -> Kernel {
        Kernel { landlock: has.landlock.min(self.landlock), ..has }
    }
}

/// Limits for requests that name none.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// The time from SIGTERM to SIGKILL.
    pub grace_ms: u64,
    /// How long descendants may hold the output open after the main process has exited.
    pub drain_ms: u64,
    /// The time limit of an agent's foreground task that names none.
    pub agent_wall_ms: u64,
    /// The most that a request may ask for, and the default.
    pub output_bytes: u64,
    pub frames: u64,
    /// The longest time limit that a request may ask for; none means no limit.
    pub wall_ms: Option<u64>,
    /// How many tasks run at the same time; the others wait in the queue.
    pub running_per_session: u64,
    pub running_per_principal: u64,
    pub running: u64,
}

/// When the directories of finished tasks are removed. The decisions about them stay.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    pub days: u64,
    /// Output and journals together; the oldest tasks are removed first.
    pub bytes: u64,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self { days: 14, bytes: 10 * 1024 * 1024 * 1024 }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            grace_ms: Limits::GRACE_MS,
            drain_ms: Limits::DRAIN_MS,
            agent_wall_ms: 600_000,
            output_bytes: Limits::OUTPUT_BYTES,
            frames: Limits::FRAMES,
            wall_ms: None,
            running_per_session: 16,
            running_per_principal: 64,
            running: 256,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::Safe,
            limits: LimitsConfig::default(),
            retention: RetentionConfig::default(),
            roots: Vec::new(),
            audience: AudienceConfig::default(),
            confine: ConfineConfig::default(),
            redact: RedactConfig::default(),
            shutdown: ShutdownConfig::default(),
            approvals: ApprovalsConfig::default(),
            http: HttpConfig::default(),
            rules: Vec::new(),
            hard_deny: Vec::new(),
            lines: Default::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{path} is not a valid configuration; correct it:\n{error}")]
    Invalid { path: PathBuf, error: Box<toml::de::Error> },
    #[error("{path}:{line}: {message}; fix it and start again")]
    Rule { path: PathBuf, line: usize, message: String },
}

impl Config {
    /// The path of the configuration file.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|h| h.join(".config")))?;
        Some(base.join("countersign/config.toml"))
    }

    /// Reads the file, or returns the defaults if there is none.
    pub fn load() -> Result<Self, ConfigError> {
        let Some(path) = Self::path() else { return Ok(Self::default()) };
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).map_err(|e| ConfigError::Invalid { path, error: Box::new(e) }),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Self::default()),
            Err(error) => Err(ConfigError::Unreadable { path, error }),
        }
    }

    /// Reads the file, or returns the defaults if there is none. For a file that cannot be read it returns the reason
    /// and what must apply nevertheless: its additional hard denies.
    pub fn load_or_degrade() -> Result<(Self, Option<String>), ConfigError> {
        #[derive(Deserialize)]
        struct Denies {
            #[serde(default)]
            hard_deny: Vec<Spanned<Rule>>,
        }
        match Self::load() {
            Ok(config) => Ok((config, None)),
            Err(ConfigError::Invalid { path, error }) => {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let denies = match toml::from_str::<Denies>(&text) {
                    Ok(denies) => denies.hard_deny,
                    // The file is valid TOML, but its hard denies cannot be read, so nothing may start.
                    Err(_) if toml::from_str::<toml::Table>(&text).is_ok() => {
                        return Err(ConfigError::Invalid { path, error });
                    }
                    Err(_) => Vec::new(),
                };
                let line = |rule: &Spanned<Rule>| text[..rule.span().start].matches('\n').count() + 1;
                let lines = [Vec::new(), denies.iter().map(line).collect(), Vec::new()];
                let config = Self { hard_deny: denies, lines, ..Self::default() };
                Ok((config, Some(format!("{} is not a valid configuration: {error}", path.display()))))
            }
            Err(ConfigError::Unreadable { path, error }) => {
                Ok((Self::default(), Some(format!("{} cannot be read: {error}", path.display()))))
            }
            Err(error) => Err(error),
        }
    }

    /// The rules and the additional hard denies. The policy crate checks their meaning.
    #[must_use]
    pub fn rules(&self) -> [Vec<Rule>; 2] {
        [&self.rules, &self.hard_deny].map(|list| list.iter().map(|r| r.get_ref().clone()).collect())
    }

    /// An error about one of these rules, with the line on which it starts.
    #[must_use]
    pub fn rule_fault(&self, index: usize, hard: bool, message: String) -> ConfigError {
        let line = self.lines[usize::from(hard)].get(index).copied().unwrap_or_default();
        ConfigError::Rule { path: Self::path().unwrap_or_default(), line, message }
    }

    /// The user's redaction rules. The redact crate checks them.
    #[must_use]
    pub fn redaction(&self) -> Vec<RedactionRule> {
        self.redact.rules.iter().map(|r| r.get_ref().clone()).collect()
    }

    /// An error about one of the redaction rules, with the line on which it starts.
    #[must_use]
    pub fn redaction_fault(&self, index: usize, message: String) -> ConfigError {
        let line = self.lines[2].get(index).copied().unwrap_or_default();
        ConfigError::Rule { path: Self::path().unwrap_or_default(), line, message }
    }

    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        fn lines<T>(text: &str, items: &[Spanned<T>]) -> Vec<usize> {
            items.iter().map(|item| text[..item.span().start].matches('\n').count() + 1).collect()
        }
        let mut config: Self = toml::from_str(text)?;
        config.lines = [lines(text, &config.rules), lines(text, &config.hard_deny), lines(text, &config.redact.rules)];
        if let Some(root) = config.roots.iter().find(|r| !r.starts_with('/') || r.len() == 1) {
            return Err(serde::de::Error::custom(format!("roots: `{root}` must be an absolute path other than `/`")));
        }
        let l = &config.limits;
        for (name, value) in [
            ("running", l.running),
            ("running_per_session", l.running_per_session),
            ("running_per_principal", l.running_per_principal),
        ] {
            if value == 0 {
                return Err(serde::de::Error::custom(format!(
                    "limits.{name} must be at least 1, or no task could run"
                )));
            }
        }
        let h = &config.http;
        if h.header_timeout_ms == 0 || h.body_timeout_ms == 0 || h.stall_timeout_ms == 0 || h.connections == 0 {
            return Err(serde::de::Error::custom("every value of [http] must be at least 1"));
        }
        if l.frames < Limits::FEWEST_FRAMES {
            return Err(serde::de::Error::custom(format!("limits.frames must be at least {}", Limits::FEWEST_FRAMES)));
        }
        if l.wall_ms == Some(0) || l.agent_wall_ms == 0 {
            return Err(serde::de::Error::custom("limits.wall_ms and limits.agent_wall_ms must be at least 1"));
        }
        Ok(config)
    }
}
