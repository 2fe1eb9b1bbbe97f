//! The house's keys: made once, read by their owner only.

use crate::{Home, fsx};
use countersign_model::HouseKey;
use std::io;

/// The key under which guessable things are digested; made at the first start.
pub fn house_key(home: &Home) -> io::Result<HouseKey> {
    let path = home.keys().join("digest.key");
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let fresh: [u8; 32] = fsx::random();
            fsx::write_durably(&home.keys(), "digest.key", &fresh)?;
            fresh.to_vec()
        }
        Err(e) => return Err(e),
    };
    let key: [u8; 32] = bytes.try_into().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is damaged: it must hold 32 bytes; restore it from a backup", path.display()),
        )
    })?;
    Ok(HouseKey::new(key))
}
