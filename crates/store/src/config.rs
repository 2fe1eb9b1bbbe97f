//! `config.toml`: what the operator wants. Unknown keys and bad values refuse to start, with the line at fault.

use countersign_model::{Limits, Profile};
use serde::Deserialize;
use std::{io, path::PathBuf};

/// The configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How much the house asks.
    pub profile: Profile,
    pub limits: LimitsConfig,
    pub retention: RetentionConfig,
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
        Self { profile: Profile::Safe, limits: LimitsConfig::default(), retention: RetentionConfig::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{path} is not a valid configuration; nothing was started:\n{error}")]
    Invalid { path: PathBuf, error: Box<toml::de::Error> },
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

    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let config: Self = toml::from_str(text)?;
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
        if l.frames < Limits::FEWEST_FRAMES {
            return Err(serde::de::Error::custom(format!("limits.frames is at least {}", Limits::FEWEST_FRAMES)));
        }
        if l.wall_ms == Some(0) || l.agent_wall_ms == 0 {
            return Err(serde::de::Error::custom("limits.wall_ms and agent_wall_ms are above 0"));
        }
        Ok(config)
    }
}
