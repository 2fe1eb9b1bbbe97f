//! Output files: bytes once, readable by range while they grow, every chunk checked against its digest.

use countersign_model::{Clean, Digest, Frame, Record, RecordContent, StreamName, StreamState, TaskState};
use rustix::fs::{Mode, OFlags};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
    sync::Arc,
};

/// No chunk is longer, by far: whoever says otherwise wants a reader to run out of memory.
const LARGEST_CHUNK: u64 = 16 * 1024 * 1024;

/// Opens a regular file for reading. Whatever else has that name, a pipe or a link, is neither waited for nor followed.
pub fn regular(path: &Path) -> io::Result<File> {
    use rustix::io::Errno;
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::LOOP | Errno::NXIO) => return Err(other()),
        Err(e) => return Err(e.into()),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

/// Appends clean bytes to the file of one stream; the file appears with its first byte.
pub struct OutputAppender {
    file: Option<File>,
    offset: u64,
}

impl OutputAppender {
    #[must_use]
    pub fn new() -> Self {
        Self { file: None, offset: 0 }
    }

    /// Writes `bytes[*done..upto]`, moving `done` along, so that a full disk can be tried again where it stopped.
    pub fn append<T: AsRef<[u8]>>(
        &mut self,
        dir: &Path,
        stream: StreamName,
        bytes: &Clean<T>,
        done: &mut usize,
        upto: usize,
    ) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let fd = rustix::fs::open(dir.join(stream.file()), flags, Mode::RUSR | Mode::WUSR)?;
                self.file.insert(File::from(fd))
            }
        };
        let bytes = &bytes.as_ref()[..upto];
        while *done < bytes.len() {
            match file.write(&bytes[*done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => *done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Where the next byte goes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl Default for OutputAppender {
    fn default() -> Self {
        Self::new()
    }
}

/// The digest of one chunk.
#[must_use]
pub fn chunk_digest(bytes: &[u8]) -> Digest {
    Digest::from_bytes(*blake3::hash(bytes).as_bytes())
}

/// The first and last `each` bytes of a stretch of an output file, as they are: for showing what has just been written.
pub fn ends(dir: &Path, stream: StreamName, offset: u64, len: u64, each: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let file = regular(&dir.join(stream.file()))?;
    let (mut head, mut tail) = (vec![0; each], vec![0; each]);
    file.read_exact_at(&mut head, offset)?;
    file.read_exact_at(&mut tail, offset.saturating_add(len).saturating_sub(each as u64))?;
    Ok((head, tail))
}

/// One chunk, read and checked against what its frame says.
/// `dropped` is what the stream lacks before it.
pub fn chunk(
    dir: &Path,
    stream: StreamName,
    offset: u64,
    len: u64,
    digest: Digest,
    dropped: u64,
) -> Result<Vec<u8>, ReadError> {
    let chunk = ChunkEntry { offset, at: offset.saturating_sub(dropped), len, digest };
    let file = regular(&dir.join(stream.file()))?;
    let mut bytes = Vec::new();
    read_chunk(&file, stream, &chunk, &mut bytes)?;
    Ok(bytes)
}

/// Appends the chunk to `bytes`. Room is made only for what can be there: a journal may say anything.
fn read_chunk(file: &File, stream: StreamName, chunk: &ChunkEntry, bytes: &mut Vec<u8>) -> Result<(), ReadError> {
    let tampered = || ReadError::Tampered { stream, offset: chunk.offset, end: chunk.end() };
    let lies_in = |length: u64| chunk.at.checked_add(chunk.len).is_some_and(|end| end <= length);
    if chunk.len > LARGEST_CHUNK || !lies_in(file.metadata()?.len()) {
        return Err(tampered());
    }
    let begin = bytes.len();
    bytes.resize(begin + chunk.len as usize, 0);
    match file.read_exact_at(&mut bytes[begin..], chunk.at) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(tampered()),
        done => done?,
    }
    match chunk_digest(&bytes[begin..]) == chunk.digest {
        true => Ok(()),
        false => Err(tampered()),
    }
}

/// Where the chunks of a task's streams lie, read from its journal as it grows.
pub struct OutputMap {
    journal: super::journal::JournalReader,
    layout: ChunkLayout,
}

/// Where chunks lie, as far as frames have told.
#[derive(Default)]
pub(crate) struct ChunkLayout(HashMap<StreamName, StreamLayout>);

#[derive(Default)]
struct StreamLayout {
    chunks: Vec<ChunkEntry>,
    gap: Option<Gap>,
}

/// Bytes of a stream that were dropped. In the file, what comes after them follows what came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub offset: u64,
    pub bytes: u64,
}

impl Gap {
    #[must_use]
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// The gaps that a reader has come by. A chunk behind one lies so much earlier in its file.
#[derive(Debug, Default, Clone)]
pub struct StreamGaps(HashMap<StreamName, Gap>);

impl StreamGaps {
    /// Those that are known of a task as it is: for readers that begin behind them.
    #[must_use]
    pub fn from_state(state: &TaskState) -> Self {
        let gap = |(stream, s): (&StreamName, &StreamState)| {
            let offset = state.request.limits.output_bytes?;
            (s.dropped > 0).then_some((*stream, Gap { offset, bytes: s.dropped }))
        };
        Self(state.io.streams.iter().filter_map(gap).collect())
    }

    pub fn note(&mut self, frame: &Frame) {
        if let Frame::Gap { stream, offset, bytes } = frame {
            self.0.insert(*stream, Gap { offset: *offset, bytes: *bytes });
        }
    }

    #[must_use]
    pub fn before(&self, stream: StreamName, offset: u64) -> u64 {
        self.0.get(&stream).filter(|gap| offset >= gap.end()).map_or(0, |gap| gap.bytes)
    }
}

/// One chunk: where it begins in its stream, and how to read it.
#[derive(Clone, Copy)]
pub struct OutputChunk {
    stream: StreamName,
    chunk: ChunkEntry,
}

impl OutputChunk {
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.chunk.offset
    }

    #[must_use]
    pub fn end(&self) -> u64 {
        self.chunk.end()
    }

    /// Appends the checked bytes to `bytes`.
    pub fn read(&self, file: &File, bytes: &mut Vec<u8>) -> Result<(), ReadError> {
        read_chunk(file, self.stream, &self.chunk, bytes)
    }
}

#[derive(Clone, Copy)]
struct ChunkEntry {
    offset: u64,
    /// Where it lies in the file.
    at: u64,
    len: u64,
    digest: Digest,
}

impl ChunkEntry {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read the output: {0}")]
    Io(#[from] io::Error),
    #[error("{stream} was changed after it was recorded: bytes {offset} to {end} do not match their digest")]
    Tampered { stream: StreamName, offset: u64, end: u64 },
    #[error("offset {offset} is beyond the end: the stream has {total} bytes")]
    BeyondEnd { offset: u64, total: u64 },
    #[error("the output limit dropped the bytes from {} to {}; offset {offset} is among them", gap.offset, gap.end())]
    InGap { offset: u64, gap: Gap },
}

impl ChunkLayout {
    /// Takes in one line of a journal.
    pub(crate) fn note(&mut self, line: &str) {
        // Only these two kinds matter here, and most lines of a long journal are the first.
        if !line.contains(r#""kind":"stream.output""#) && !line.contains(r#""kind":"stream.gap""#) {
            return;
        }
        match Record::parse(line).map(|r| r.what) {
            Ok(RecordContent::Frame(Frame::Output { stream, offset, len, digest })) => {
                let lies = self.0.entry(stream).or_default();
                let at = offset.saturating_sub(lies.gap.filter(|g| offset >= g.end()).map_or(0, |g| g.bytes));
                lies.chunks.push(ChunkEntry { offset, at, len, digest });
            }
            Ok(RecordContent::Frame(Frame::Gap { stream, offset, bytes })) => {
                self.0.entry(stream).or_default().gap = Some(Gap { offset, bytes });
            }
            _ => {}
        }
    }

    /// Every chunk of a stream, in the order in which they were told.
    pub(crate) fn all(&self, stream: StreamName) -> impl Iterator<Item = OutputChunk> {
        let chunks = self.0.get(&stream).map(|l| l.chunks.as_slice()).unwrap_or_default();
        chunks.iter().map(move |chunk| OutputChunk { stream, chunk: *chunk })
    }
}

impl OutputMap {
    pub fn open(dir: &Path, first_seq: u64) -> io::Result<Self> {
        Ok(Self { journal: super::journal::JournalReader::open(dir, first_seq)?, layout: ChunkLayout::default() })
    }

    /// Takes in what the journal has gained.
    pub fn refresh(&mut self) -> io::Result<()> {
        loop {
            let lines = self.journal.lines(256 * 1024)?;
            if lines.is_empty() {
                return Ok(());
            }
            lines.iter().for_each(|(_, line)| self.layout.note(line));
        }
    }

    fn lies(&self, stream: StreamName) -> Option<&StreamLayout> {
        self.layout.0.get(&stream)
    }

    #[must_use]
    pub fn total(&self, stream: StreamName) -> u64 {
        self.lies(stream).and_then(|l| l.chunks.last()).map_or(0, ChunkEntry::end)
    }

    #[must_use]
    pub fn gap(&self, stream: StreamName) -> Option<Gap> {
        self.lies(stream)?.gap
    }

    /// The chunks that hold the bytes from `offset` on, at least `max` of them if there are as many; none across a gap.
    /// What is read of them is checked; whoever takes them needs the map no more.
    #[must_use]
    pub fn spans(&self, stream: StreamName, offset: u64, max: u64) -> Vec<OutputChunk> {
        let end = offset.saturating_add(max);
        let Some(lies) = self.lies(stream) else { return Vec::new() };
        let first = lies.chunks.partition_point(|c| c.end() <= offset);
        let until = lies.gap.filter(|gap| offset < gap.end()).map_or(u64::MAX, |gap| gap.offset);
        let wanted = lies.chunks[first..].iter().take_while(|c| c.offset < end && c.offset < until);
        wanted.map(|chunk| OutputChunk { stream, chunk: *chunk }).collect()
    }

    /// The verified bytes from `offset` on, at most `max`; none across a gap.
    pub fn read(
        &self,
        cache: &mut ChunkCache,
        dir: &Path,
        stream: StreamName,
        offset: u64,
        max: u64,
    ) -> Result<Vec<u8>, ReadError> {
        let total = self.total(stream);
        if offset > total {
            return Err(ReadError::BeyondEnd { offset, total });
        }
        let mut end = offset.saturating_add(max).min(total);
        if let Some(gap) = self.gap(stream) {
            if (gap.offset..gap.end()).contains(&offset) && max > 0 {
                return Err(ReadError::InGap { offset, gap });
            }
            if offset < gap.offset {
                end = end.min(gap.offset);
            }
        }
        let mut out = Vec::with_capacity((end - offset).min(LARGEST_CHUNK) as usize);
        if end == offset {
            return Ok(out);
        }
        let file = regular(&dir.join(stream.file()))?;
        let chunks = self.lies(stream).map(|l| l.chunks.as_slice()).unwrap_or_default();
        let first = chunks.partition_point(|c| c.end() <= offset);
        for chunk in chunks[first..].iter().take_while(|c| c.offset < end) {
            if offset <= chunk.offset && chunk.end() <= end {
                // All of it is wanted: straight to where it goes.
                read_chunk(&file, stream, chunk, &mut out)?;
                continue;
            }
            let bytes = cache.verified(&file, stream, chunk)?;
            let from = offset.saturating_sub(chunk.offset).min(chunk.len) as usize;
            let to = (end - chunk.offset).min(chunk.len) as usize;
            out.extend_from_slice(&bytes[from..to]);
        }
        // A journal that tells of nothing between here and its end would have its readers ask for ever.
        if out.is_empty() { Err(ReadError::Tampered { stream, offset, end }) } else { Ok(out) }
    }

    /// The byte range of lines `line` to `line + lines` (1-based) as far as they exist.
    pub fn lines(
        &self,
        cache: &mut ChunkCache,
        dir: &Path,
        stream: StreamName,
        line: u64,
        lines: u64,
    ) -> Result<(u64, u64), ReadError> {
        let (mut number, mut start, mut offset) = (1, (line <= 1).then_some(0), 0);
        let last = line.max(1).saturating_add(lines);
        if lines == 0 {
            return Ok((0, 0));
        }
        // Behind a gap nobody knows the number of a line: lines are counted up to it.
        let total = self.gap(stream).map_or_else(|| self.total(stream), |gap| gap.offset);
        while offset < total {
            let bytes = self.read(cache, dir, stream, offset, WINDOW)?;
            for end in memchr::memchr_iter(b'\n', &bytes) {
                number += 1;
                let here = offset + end as u64 + 1;
                if number == line {
                    start = Some(here);
                }
                if number == last {
                    return Ok((start.unwrap_or(here), here));
                }
            }
            offset += bytes.len() as u64;
        }
        Ok((start.unwrap_or(total), total))
    }

    /// Where the last `lines` lines begin.
    pub fn tail(&self, cache: &mut ChunkCache, dir: &Path, stream: StreamName, lines: u64) -> Result<u64, ReadError> {
        let total = self.total(stream);
        // Not across a gap: the tail is what was kept of the end.
        let first = self.gap(stream).filter(|gap| gap.end() < total).map_or(0, Gap::end);
        let mut end = total;
        let mut left = lines;
        while end > first && left > 0 {
            let start = end.saturating_sub(WINDOW).max(first);
            let bytes = self.read(cache, dir, stream, start, end - start)?;
            for newline in memchr::memrchr_iter(b'\n', &bytes) {
                let after = start + newline as u64 + 1;
                if after == total {
                    continue;
                }
                left -= 1;
                if left == 0 {
                    return Ok(after);
                }
            }
            end = start;
        }
        Ok(if lines == 0 { total } else { first })
    }
}

const WINDOW: u64 = 256 * 1024;
const CACHED: usize = 4;

/// A few chunks that have been read and checked. A file that changed since is read and checked again.
#[derive(Default)]
pub struct ChunkCache {
    chunks: Vec<(ChunkKey, Arc<Vec<u8>>)>,
}

#[derive(PartialEq, Clone, Copy)]
struct ChunkKey {
    dev: u64,
    inode: u64,
    mtime: (i64, i64),
    size: u64,
    stream: StreamName,
    offset: u64,
}

impl ChunkCache {
    fn verified(&mut self, file: &File, stream: StreamName, chunk: &ChunkEntry) -> Result<Arc<Vec<u8>>, ReadError> {
        let meta = file.metadata()?;
        let key = ChunkKey {
            dev: meta.dev(),
            inode: meta.ino(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            size: meta.size(),
            stream,
            offset: chunk.offset,
        };
        if let Some((_, bytes)) = self.chunks.iter().find(|(k, _)| *k == key) {
            return Ok(Arc::clone(bytes));
        }
        let mut bytes = match self.chunks.len() < CACHED {
            true => Vec::new(),
            // The oldest buffer serves again unless a reader still holds it.
            false => Arc::try_unwrap(self.chunks.remove(0).1).unwrap_or_default(),
        };
        bytes.clear();
        read_chunk(file, stream, chunk, &mut bytes)?;
        let bytes = Arc::new(bytes);
        self.chunks.push((key, Arc::clone(&bytes)));
        Ok(bytes)
    }
}
