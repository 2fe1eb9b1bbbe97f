//! The house's keys: made once, read by their owner only.

use crate::{Home, fsx};
use countersign_model::HomeKey;
use std::io;

/// The key under which guessable things are digested; made at the first start.
pub fn house_key(home: &Home) -> io::Result<HomeKey> {
    match kept(home, "digest.key")? {
        Some(key) => Ok(HomeKey::new(key)),
        None => Ok(HomeKey::new(fresh(home, "digest.key")?)),
    }
}

/// A key of 32 bytes; none when there is none yet.
fn kept(home: &Home, name: &str) -> io::Result<Option<[u8; 32]>> {
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

fn fresh(home: &Home, name: &str) -> io::Result<[u8; 32]> {
    let key: [u8; 32] = fsx::random();
    fsx::write_durably(&home.keys(), name, &key)?;
    Ok(key)
}

#[cfg(feature = "ledger")]
mod signing {
    use super::{Home, fresh, fsx, io, kept};
    use crate::SigningKey;
    use countersign_model::Digest;

    const NAME: &str = "signing.key";
    const NEXT: &str = "signing.next";

    /// The key that signs receipts. `announced` is the one that the ledger has last: another one, or a new one in its
    /// place, would sign what nobody can check, so that is refused.
    pub fn signing_key(home: &Home, announced: Option<Digest>) -> io::Result<SigningKey> {
        let found = kept(home, NAME)?.map(|seed| SigningKey::from_seed(&seed));
        match (found, announced) {
            (Some(key), Some(wanted)) if key.public().id() != wanted => {
                // A change of keys that was announced and then cut off.
                match kept(home, NEXT)?.map(|seed| SigningKey::from_seed(&seed)) {
                    Some(next) if next.public().id() == wanted => {
                        std::fs::rename(home.keys().join(NEXT), home.keys().join(NAME))?;
                        Ok(next)
                    }
                    _ => Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!(
                            "{} is not the key that the ledger has last ({wanted}); restore that one, or begin with a \
                             new one: csn keys rotate --lost",
                            home.keys().join(NAME).display()
                        ),
                    )),
                }
            }
            (Some(key), _) => Ok(key),
            (None, None) => Ok(SigningKey::from_seed(&fresh(home, NAME)?)),
            (None, Some(_)) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "{} is missing; restore it from a backup, or begin with a new one: csn keys rotate --lost",
                    home.keys().join(NAME).display()
                ),
            )),
        }
    }

    /// Makes the next key and keeps it beside the one in use: should the change be cut off, it is found again.
    /// `current` may be one whose own change was cut off: it comes to its place first.
    pub fn prepare_signing_key(home: &Home, current: Option<Digest>) -> io::Result<SigningKey> {
        let waiting = kept(home, NEXT)?.map(|seed| SigningKey::from_seed(&seed));
        if waiting.is_some_and(|next| Some(next.public().id()) == current) {
            adopt_signing_key(home)?;
        }
        Ok(SigningKey::from_seed(&fresh(home, NEXT)?))
    }

    /// The next key, which has been announced, is the key from now on. The one before it is gone: whoever steals a key
    /// that signs no more could still sign with it.
    pub fn adopt_signing_key(home: &Home) -> io::Result<()> {
        let keys = home.keys();
        std::fs::rename(keys.join(NEXT), keys.join(NAME))?;
        fsx::sync_dir(&keys)
    }
}
#[cfg(feature = "ledger")]
pub use signing::{adopt_signing_key, prepare_signing_key, signing_key};
