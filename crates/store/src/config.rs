//! `config.toml`: what the operator wants. Unknown keys and bad values refuse to start, with the line at fault.

use countersign_model::{GrantedSandbox, Kernel, Limits, Network, Profile, RedactionRule, Rule};
use serde::Deserialize;
use std::{io, path::PathBuf};
use toml::Spanned;

/// The configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How much the house asks.
    pub profile: Profile,
    pub limits: LimitsConfig,
    pub retention: RetentionConfig,
    /// Directories that may be read unasked, beside the repository that a request runs in.
    pub roots: Vec<String>,
    pub audience: AudienceConfig,
    pub confine: ConfineConfig,
    pub redact: RedactConfig,
    pub shutdown: ShutdownConfig,
    pub approvals: ApprovalsConfig,
    pub http: HttpConfig,
    /// Lasting answers, and additions to what is always denied.
    pub rules: Vec<Spanned<Rule>>,
    pub hard_deny: Vec<Spanned<Rule>>,
    /// The line that each of these starts on.
    #[serde(skip)]
    lines: [Vec<usize>; 3],
}

/// What is taken out of output beside what the house knows.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedactConfig {
    pub rules: Vec<Spanned<RedactionRule>>,
}

/// What becomes of running tasks when the house goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownConfig {
    pub tasks: TasksAtStop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TasksAtStop {
    /// They go on, and the next daemon finds them.
    #[default]
    Keep,
    Stop,
}

/// How long connections may keep the daemon waiting, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// How long the head of a request may take to arrive, and how long a connection may wait between two.
    pub header_timeout_ms: u64,
    /// How long the body of a request may take to arrive.
    pub body_timeout_ms: u64,
    /// How long the other end may take nothing of what it is sent before it is dropped.
    pub stall_timeout_ms: u64,
    /// How many connections on loopback may be open at once that have shown a token; a quarter is for persons.
    pub connections: usize,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { header_timeout_ms: 15_000, body_timeout_ms: 30_000, stall_timeout_ms: 60_000, connections: 512 }
    }
}

/// How questions may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsConfig {
    pub in_band: InBandAnswers,
}

/// What an agent's own client may answer for the person who sits at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InBandAnswers {
    /// Once, or no.
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

/// How far reading goes unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnaskedReads {
    /// Inside the roots.
    #[default]
    Roots,
    /// Everywhere but where secrets are kept.
    All,
}

/// What the kernel shall enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfineConfig {
    /// The sandbox of what is granted or approved: `narrow` (what its risks need), `workspace` (that at most) or `shield`
    /// (it runs open).
    pub granted: GrantedSandbox,
    /// Whom a task in a workspace may reach.
    pub network: Network,
    /// The newest version of Landlock to make use of, to see how the house behaves on an older kernel.
    pub landlock: u32,
}

impl Default for ConfineConfig {
    fn default() -> Self {
        Self { granted: GrantedSandbox::Narrow, network: Network::Open, landlock: Kernel::FULL.landlock }
    }
}

impl ConfineConfig {
    /// What is made use of, of what there is.
    #[must_use]
    pub fn kernel(&self, has: Kernel) -> Kernel {
        Kernel { landlock: has.landlock.min(self.landlock), ..has }
    }
}

/// Bounds for requests that name none.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// From SIGTERM to SIGKILL.
    pub grace_ms: u64,
    /// How long descendants may hold the output open after the main process has exited.
    pub drain_ms: u64,
    /// The wall clock of an agent's foreground task that names none.
    pub agent_wall_ms: u64,
    /// The most that a request may ask for, and what it gets when it names nothing.
    pub output_bytes: u64,
    pub frames: u64,
    /// The longest wall clock that a request may ask for; none is any.
    pub wall_ms: Option<u64>,
    /// How many tasks run at once; the rest wait in line.
    pub running_per_session: u64,
    pub running_per_principal: u64,
    pub running: u64,
}

/// When the directories of finished tasks are removed. What was decided about them stays.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    pub days: u64,
    /// Output and journals together; the oldest go first.
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
    #[error("{path} is not a valid configuration; nothing was started:\n{error}")]
    Invalid { path: PathBuf, error: Box<toml::de::Error> },
    #[error("{path}:{line}: {message}; nothing was started")]
    Rule { path: PathBuf, line: usize, message: String },
}

impl Config {
    /// Where the configuration is looked for.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|h| h.join(".config")))?;
        Some(base.join("countersign/config.toml"))
    }

    /// The file, or the defaults when there is none.
    pub fn load() -> Result<Self, ConfigError> {
        let Some(path) = Self::path() else { return Ok(Self::default()) };
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).map_err(|e| ConfigError::Invalid { path, error: Box::new(e) }),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Self::default()),
            Err(error) => Err(ConfigError::Unreadable { path, error }),
        }
    }

    /// The file, the defaults when there is none, or, of one that cannot be read, what must hold all the same: its
    /// additions to the hard denies. Then the reason comes with it.
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
                    // What was always to be denied is not known: that it is TOML is all that can be told apart.
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

    /// The rules and the additions to the hard denies, to be checked by who knows what they mean.
    #[must_use]
    pub fn rules(&self) -> [Vec<Rule>; 2] {
        [&self.rules, &self.hard_deny].map(|list| list.iter().map(|r| r.get_ref().clone()).collect())
    }

    /// What is wrong with one of them, with the line that it starts on.
    #[must_use]
    pub fn rule_fault(&self, index: usize, hard: bool, message: String) -> ConfigError {
        let line = self.lines[usize::from(hard)].get(index).copied().unwrap_or_default();
        ConfigError::Rule { path: Self::path().unwrap_or_default(), line, message }
    }

    /// What the user wants taken out of output, to be checked by who can.
    #[must_use]
    pub fn redaction(&self) -> Vec<RedactionRule> {
        self.redact.rules.iter().map(|r| r.get_ref().clone()).collect()
    }

    /// What is wrong with one of these rules, with the line that it starts on.
    #[must_use]
    pub fn redaction_fault(&self, index: usize, message: String) -> ConfigError {
        let line = self.lines[2].get(index).copied().unwrap_or_default();
        ConfigError::Rule { path: Self::path().unwrap_or_default(), line, message }
    }

    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        fn lines<T>(text: &str, of: &[Spanned<T>]) -> Vec<usize> {
            of.iter().map(|it| text[..it.span().start].matches('\n').count() + 1).collect()
        }
        let mut config: Self = toml::from_str(text)?;
        config.lines = [lines(text, &config.rules), lines(text, &config.hard_deny), lines(text, &config.redact.rules)];
        if let Some(root) = config.roots.iter().find(|r| !r.starts_with('/') || r.len() == 1) {
            return Err(serde::de::Error::custom(format!("roots: `{root}` is not a directory that can be a root")));
        }
        let l = &config.limits;
        for (name, value) in [
            ("running", l.running),
            ("running_per_session", l.running_per_session),
            ("running_per_principal", l.running_per_principal),
        ] {
            if value == 0 {
                return Err(serde::de::Error::custom(format!("limits.{name} is 0: nothing could ever run")));
            }
        }
        let h = &config.http;
        if h.header_timeout_ms == 0 || h.body_timeout_ms == 0 || h.stall_timeout_ms == 0 || h.connections == 0 {
            return Err(serde::de::Error::custom("what stands below [http] is above 0"));
        }
        if l.frames < Limits::FEWEST_FRAMES {
            return Err(serde::de::Error::custom(format!("limits.frames is at least {}", Limits::FEWEST_FRAMES)));
        }
        if l.wall_ms == Some(0) || l.agent_wall_ms == 0 {
            return Err(serde::de::Error::custom("limits.wall_ms and agent_wall_ms are above 0"));
        }
        Ok(config)
    }
}
