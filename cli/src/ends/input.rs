//! Bytes read once, from first to last: from a pipe as they arrive, or from a file.

use std::io::{self, BufRead, ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tempfile::SpooledTempFile;

/// Bytes of one read from the source.
const CHUNK: usize = 1 << 18;

/// Chunks that the thread may read ahead from a pipe.
const AHEAD: usize = 4;

/// Bytes of one picture to keep in memory. A larger picture goes to a temporary file.
const IN_MEMORY: usize = 32 << 20;

/// Maximum size of a picture from a pipe, in bytes: twice the default `--max-bytes`.
pub(crate) const LIMIT: u64 = 4 << 30;

/// Storage for one picture's bytes: memory, or a file without a name.
pub(crate) fn spool() -> SpooledTempFile {
    SpooledTempFile::new(IN_MEMORY)
}

/// The error of a walker whose input ends before the picture does.
pub(crate) fn cut_off() -> io::Error {
    ErrorKind::UnexpectedEof.into()
}

/// The input of a walker.
pub(crate) trait Bytes: BufRead {
    /// The next bytes, without skipping them: `count` bytes, or all that are left.
    fn peek(&mut self, count: usize) -> io::Result<&[u8]>;

    /// Skips this number of bytes. Fails with [`ErrorKind::UnexpectedEof`] if the input ends
    /// before.
    fn skip(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let there = self.fill_buf()?.len();
            if there == 0 {
                return Err(cut_off());
            }
            let part = count.min(there as u64);
            self.consume(part as usize);
            count -= part;
        }
        Ok(())
    }
}

impl Bytes for &[u8] {
    fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        Ok(&self[..count.min(self.len())])
    }
}

/// A file, or a substitute for one.
pub(crate) trait Seekable: Read + Seek + Send {}
impl<T: Read + Seek + Send> Seekable for T {}

/// The source of the bytes.
enum Source {
    /// A thread that reads a pipe, so that another thread can wake a reader that waits for bytes.
    Pipe(Receiver<io::Result<Vec<u8>>>),
    /// A file, the position of the next read, and the length.
    File { file: Box<dyn Seekable>, at: u64, length: u64 },
}

/// Bytes to walk over once. [`Input::keep`] keeps the bytes of a picture.
pub(crate) struct Input {
    source: Source,
    /// Bytes that were read, and the index of the first that no walker skipped.
    chunk: Vec<u8>,
    at: usize,
    /// The index of the first byte of the chunk that is not among the kept ones.
    unkept: usize,
    kept: Option<Kept>,
    position: u64,
}

struct Kept {
    spool: SpooledTempFile,
    length: u64,
}

impl Input {
    /// Reads a pipe on a thread of its own. The sender wakes a waiting reader.
    pub(crate) fn of_pipe(
        mut pipe: Box<dyn Read + Send>,
    ) -> (Self, SyncSender<io::Result<Vec<u8>>>) {
        let (sender, receiver) = sync_channel(AHEAD);
        let wake = sender.clone();
        // The thread may wait for a pipe that nobody ever writes to, so nothing joins it.
        std::thread::spawn(move || {
            let mut buffer = vec![0; CHUNK];
            loop {
                let read = match pipe.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => Ok(buffer[..read].to_vec()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = read.is_err();
                if sender.send(read).is_err() || failed {
                    return;
                }
            }
            // The other sender keeps the channel open: an empty chunk marks the end.
            let _ = sender.send(Ok(Vec::new()));
        });
        (Self::new(Source::Pipe(receiver)), wake)
    }

    /// Reads a file from its first byte.
    pub(crate) fn of_file(mut file: impl Seekable + 'static) -> io::Result<Self> {
        let length = file.seek(SeekFrom::End(0))?;
        file.rewind()?;
        Ok(Self::new(Source::File { file: Box::new(file), at: 0, length }))
    }

    fn new(source: Source) -> Self {
        Self { source, chunk: Vec::new(), at: 0, unkept: 0, kept: None, position: 0 }
    }

    /// The number of bytes skipped so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Keeps all bytes that are skipped from now on.
    pub(crate) fn keep(&mut self) {
        self.unkept = self.at;
        self.kept = Some(Kept { spool: spool(), length: 0 });
    }

    /// The kept bytes, at the first one.
    pub(crate) fn kept(&mut self) -> io::Result<SpooledTempFile> {
        self.note_down()?;
        let mut spool = self.kept.take().map_or_else(spool, |kept| kept.spool);
        spool.rewind()?;
        Ok(spool)
    }

    /// Skips to the end. Returns the number of bytes.
    pub(crate) fn drain(&mut self) -> io::Result<u64> {
        let start = self.position;
        loop {
            let there = self.fill_buf()?.len();
            if there == 0 {
                return Ok(self.position - start);
            }
            self.consume(there);
        }
    }

    fn note_down(&mut self) -> io::Result<()> {
        if let Some(kept) = &mut self.kept {
            kept.spool.write_all(&self.chunk[self.unkept..self.at])?;
            kept.length += (self.at - self.unkept) as u64;
            if kept.length > LIMIT {
                return Err(too_much());
            }
        }
        self.unkept = self.at;
        Ok(())
    }

    /// Drops skipped bytes from the chunk and appends the next ones. Returns false at the end.
    fn read_on(&mut self) -> io::Result<bool> {
        self.note_down()?;
        self.chunk.drain(..self.at);
        (self.at, self.unkept) = (0, 0);
        let before = self.chunk.len();
        match &mut self.source {
            Source::Pipe(receiver) => match receiver.recv() {
                Ok(chunk) => {
                    let chunk = chunk?;
                    if chunk.is_empty() {
                        self.source =
                            Source::File { file: Box::new(io::empty()), at: 0, length: 0 };
                    } else if before == 0 {
                        self.chunk = chunk;
                    } else {
                        self.chunk.extend(chunk);
                    }
                }
                Err(_) => return Ok(false),
            },
            Source::File { file, at, .. } => {
                self.chunk.resize(before + CHUNK, 0);
                let read = loop {
                    match file.read(&mut self.chunk[before..]) {
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        read => break read,
                    }
                };
                self.chunk.truncate(before + *read.as_ref().unwrap_or(&0));
                *at += read? as u64;
            }
        }
        Ok(self.chunk.len() > before)
    }
}

fn too_much() -> io::Error {
    io::Error::other(format!(
        "one picture has more than {} GiB: write it to a file, and name that file",
        LIMIT >> 30
    ))
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.chunk.len() {
            self.read_on()?;
        }
        Ok(&self.chunk[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
        self.position += count as u64;
    }
}

impl Bytes for Input {
    fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.chunk.len() - self.at < count && self.read_on()? {}
        Ok(&self.chunk[self.at..self.chunk.len().min(self.at + count)])
    }

    fn skip(&mut self, mut count: u64) -> io::Result<()> {
        // Refuses a header that claims too much before waiting for its bytes.
        if let Some(kept) = &self.kept
            && count > LIMIT - kept.length.min(LIMIT)
        {
            return Err(too_much());
        }
        loop {
            let there = (self.chunk.len() - self.at) as u64;
            let part = count.min(there);
            self.consume(part as usize);
            count -= part;
            if count == 0 {
                return Ok(());
            }
            if let Source::File { file, at, length } = &mut self.source
                && self.kept.is_none()
                && count > CHUNK as u64
            {
                let target = at.saturating_add(count);
                let reached = target.min(*length);
                self.position += reached - *at;
                *at = file.seek(SeekFrom::Start(reached))?;
                return if target == reached { Ok(()) } else { Err(cut_off()) };
            }
            if !self.read_on()? {
                return Err(cut_off());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives its bytes in parts of every size from 1 on.
    struct Slowly(io::Cursor<Vec<u8>>, usize);

    impl Read for Slowly {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = self.1 % 7 + 1;
            let most = into.len().min(self.1);
            self.0.read(&mut into[..most])
        }
    }

    #[test]
    fn bytes_are_kept_as_they_come() {
        let all: Vec<u8> = (0..4000u32).map(|i| (i * 7 % 251) as u8).collect();
        let inputs = || {
            let pipe = Box::new(Slowly(io::Cursor::new(all.clone()), 0));
            [Input::of_pipe(pipe).0, Input::of_file(io::Cursor::new(all.clone())).unwrap()]
        };
        for mut input in inputs() {
            input.skip(10).unwrap();
            input.keep();
            assert_eq!(input.peek(100).unwrap(), &all[10..110]);
            input.skip(50).unwrap();
            let mut three = [0; 3];
            input.read_exact(&mut three).unwrap();
            assert_eq!((three, input.position()), ([all[60], all[61], all[62]], 63));
            assert_eq!(input.peek(2).unwrap(), &all[63..65]);
            let mut kept = Vec::new();
            input.kept().unwrap().read_to_end(&mut kept).unwrap();
            assert_eq!(kept, &all[10..63]);
            assert_eq!(input.peek(5000).unwrap(), &all[63..]);
            assert_eq!(input.skip(5000).unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert_eq!((input.drain().unwrap(), input.peek(1).unwrap()), (0, &[][..]));
            assert_eq!(input.fill_buf().unwrap(), [0u8; 0]);
        }
    }

    #[test]
    fn a_header_that_claims_too_much_is_refused_at_once() {
        let (mut input, _wake) = Input::of_pipe(Box::new(io::repeat(7)));
        input.keep();
        assert!(input.skip(LIMIT + 1).unwrap_err().to_string().contains("GiB"));
    }

    #[test]
    fn a_reader_that_waits_is_woken() {
        struct Never;
        impl Read for Never {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                loop {
                    std::thread::park();
                }
            }
        }
        let (mut input, wake) = Input::of_pipe(Box::new(Never));
        let waits =
            std::thread::spawn(move || input.fill_buf().map(<[u8]>::len).unwrap_err().kind());
        wake.send(Err(ErrorKind::BrokenPipe.into())).unwrap();
        assert_eq!(waits.join().unwrap(), ErrorKind::BrokenPipe);
    }
}
