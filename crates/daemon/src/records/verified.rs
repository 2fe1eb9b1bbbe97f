//! Files whose digest was verified, with their stamp: an unchanged file need not be read again.

use crate::lock;
use countersign_model::Digest;
use countersign_store::closing::digest_open_file;
use std::{collections::VecDeque, fs::File, os::unix::fs::MetadataExt as _, sync::Mutex};

const MAX_CACHED_FILES: usize = 64;

type FileStamp = (u64, u64, u64, i64, i64);

#[derive(Default)]
pub(crate) struct VerifiedFiles {
    recent: Mutex<VecDeque<(Digest, FileStamp)>>,
}

impl VerifiedFiles {
    /// Whether an open file has this digest.
    pub(crate) fn matches_digest(&self, digest: Digest, file: &File) -> std::io::Result<bool> {
        let m = file.metadata()?;
        let stamp = (m.dev(), m.ino(), m.len(), m.ctime(), m.ctime_nsec());
        if lock(&self.recent).contains(&(digest, stamp)) {
            return Ok(true);
        }
        if digest_open_file(file)?.0 != digest {
            return Ok(false);
        }
        let mut recent = lock(&self.recent);
        recent.push_back((digest, stamp));
        if recent.len() > MAX_CACHED_FILES {
            recent.pop_front();
        }
        Ok(true)
    }
}
