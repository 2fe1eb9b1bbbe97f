//! The keys of a home: created once, readable only by their owner.

use crate::{Home, fsx};
use countersign_model::HomeKey;
use std::io;

/// The key for digests of values that could be guessed; created at the first start.
pub fn home_key(home: &Home) -> io::Result<HomeKey> {
    match read_key(home, "digest.key")? {
        Some(key) => Ok(HomeKey::new(key)),
        None => Ok(HomeKey::new(create_key(home, "digest.key")?)),
    }
}

/// Reads a key of 32 bytes; none if it does not exist yet.
fn read_key(home: &Home, name: &str) -> io::Result<Option<[u8; 32]>> {
    let path = home.keys().join(name);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io::Error::new(e.kind(), format!("{} cannot be read: {e}", path.display()))),
    };
    let key: [u8; 32] = bytes.try_into().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is damaged: it must hold 32 bytes; restore it from a backup", path.display()),
        )
    })?;
    Ok(Some(key))
}

fn create_key(home: &Home, name: &str) -> io::Result<[u8; 32]> {
    let key: [u8; 32] = fsx::random();
    fsx::write_durably(&home.keys(), name, &key)?;
    Ok(key)
}

#[cfg(feature = "ledger")]
mod signing {
    use super::{Home, create_key, fsx, io, read_key};
    use crate::SigningKey;
    use countersign_model::Digest;

    const SIGNING_KEY_FILE: &str = "signing.key";
    const NEXT_KEY_FILE: &str = "signing.next";

    /// The key that signs receipts. `announced` is the key that the ledger announced last. Any other key would create
    /// signatures that nobody can check, so it is refused.
    pub fn signing_key(home: &Home, announced: Option<Digest>) -> io::Result<SigningKey> {
        let found = read_key(home, SIGNING_KEY_FILE)?.map(|seed| SigningKey::from_seed(&seed));
        match (found, announced) {
            (Some(key), Some(wanted)) if key.public().id() != wanted => {
                // A rotation was announced and then interrupted.
                match read_key(home, NEXT_KEY_FILE)?.map(|seed| SigningKey::from_seed(&seed)) {
                    Some(next) if next.public().id() == wanted => {
                        std::fs::rename(home.keys().join(NEXT_KEY_FILE), home.keys().join(SIGNING_KEY_FILE))?;
                        Ok(next)
                    }
                    _ => Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!(
                            "{} is not the key that the ledger announced last ({wanted}); restore that key, or \
                             switch to a new one: csn keys rotate --lost",
                            home.keys().join(SIGNING_KEY_FILE).display()
                        ),
                    )),
                }
            }
            (Some(key), _) => Ok(key),
            (None, None) => Ok(SigningKey::from_seed(&create_key(home, SIGNING_KEY_FILE)?)),
            (None, Some(_)) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "{} is missing; restore it from a backup, or switch to a new key: csn keys rotate --lost",
                    home.keys().join(SIGNING_KEY_FILE).display()
                ),
            )),
        }
    }

    /// Creates the next key and stores it beside the current one, so that it is found again if the rotation is
    /// interrupted. If the rotation to `current` itself was interrupted, it is completed first.
    pub fn prepare_signing_key(home: &Home, current: Option<Digest>) -> io::Result<SigningKey> {
        let waiting = read_key(home, NEXT_KEY_FILE)?.map(|seed| SigningKey::from_seed(&seed));
        if waiting.is_some_and(|next| Some(next.public().id()) == current) {
            adopt_signing_key(home)?;
        }
        Ok(SigningKey::from_seed(&create_key(home, NEXT_KEY_FILE)?))
    }

    /// The next key, which has been announced, becomes the current key. The previous one is deleted, because a stolen
    /// old key could still sign.
    pub fn adopt_signing_key(home: &Home) -> io::Result<()> {
        let keys = home.keys();
        std::fs::rename(keys.join(NEXT_KEY_FILE), keys.join(SIGNING_KEY_FILE))?;
        fsx::sync_dir(&keys)
    }
}
#[cfg(feature = "ledger")]
pub use signing::{adopt_signing_key, prepare_signing_key, signing_key};
