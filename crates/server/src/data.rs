//! An answer that is made of stored rows. It is sent in chunks while it is made, unless it is short.

use super::reply::{Request, write_data_head};
use super::timeouts::End;
use super::wire::{LONGEST, Stream, Wire};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What is longer is sent in chunks of this size. A chunk is small enough not to be counted in the memory budget.
const CHUNK_BYTES: usize = 32 << 10;
/// So much of a value is made JSON at once. Whole groups of base64.
const PIECE_BYTES: usize = 3 << 10;

pub(super) struct DataWriter<'c, S: Stream> {
    wire: &'c mut Wire<S>,
    request: &'c mut Request,
    content_type: &'static str,
    /// The path where it goes on.
    pub(super) link: Option<String>,
    /// What is not sent yet.
    unsent: Vec<u8>,
    /// Whether the head is sent.
    has_begun: bool,
    /// How long it took to send what is sent: as long as that of a value may take, which holds memory meanwhile.
    sending: Duration,
}

impl<'c, S: Stream> DataWriter<'c, S> {
    pub(super) fn new(
        wire: &'c mut Wire<S>,
        request: &'c mut Request,
        content_type: &'static str,
    ) -> DataWriter<'c, S> {
        DataWriter {
            wire,
            request,
            content_type,
            link: None,
            unsent: Vec::new(),
            has_begun: false,
            sending: Duration::ZERO,
        }
    }

    /// Appends `bytes`, which are few.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.unsent.extend_from_slice(bytes);
        while self.unsent.len() >= CHUNK_BYTES {
            self.send(CHUNK_BYTES).await?;
        }
        Ok(())
    }

    /// Appends an object of JSON that is not empty. Behind its other members comes a `value`, as in [`push_bytes`]: it
    /// may be large, and is made JSON in pieces.
    ///
    /// [`push_bytes`]: super::json::push_bytes
    pub(super) async fn push_object(
        &mut self,
        object: &impl Serialize,
        value: Option<&[u8]>,
    ) -> Result<(), End> {
        // Strings and numbers cannot fail to serialize.
        let _ = serde_json::to_writer(&mut self.unsent, object);
        let Some(value) = value else { return self.push(b"").await };
        debug_assert!(self.unsent.ends_with(b"}"));
        self.unsent.pop();
        match std::str::from_utf8(value) {
            Ok(mut text) => {
                self.push(b",\"value\":\"").await?;
                while !text.is_empty() {
                    let (first, behind) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
                    let begin = self.unsent.len();
                    let _ = serde_json::to_writer(&mut self.unsent, first);
                    // Without its quotation marks.
                    self.unsent.pop();
                    self.unsent.remove(begin);
                    self.push(b"").await?;
                    text = behind;
                }
            }
            Err(_) => {
                self.push(b",\"value_b64\":\"").await?;
                for bytes in value.chunks(PIECE_BYTES) {
                    self.push(STANDARD.encode(bytes).as_bytes()).await?;
                }
            }
        }
        self.push(b"\"}").await
    }

    /// Ends the answer.
    pub(super) async fn finish(mut self) -> Result<(), End> {
        if self.has_begun {
            self.send(self.unsent.len()).await?;
            if self.is_chunked() {
                self.wire.output.extend_from_slice(b"0\r\n\r\n");
            }
            return Ok(());
        }
        self.begin(Some(self.unsent.len()));
        if !self.request.is_head() {
            self.wire.output.append(&mut self.unsent);
        }
        Ok(())
    }

    fn begin(&mut self, length: Option<usize>) {
        self.has_begun = true;
        let DataWriter { wire, request, .. } = self;
        // Without a length only its end ends an answer of HTTP/1.0.
        request.keep_alive &= !wire.worker.is_draining() && (length.is_some() || !request.is_http10);
        write_data_head(&mut wire.output, request, self.content_type, length, self.link.as_deref());
    }

    fn is_chunked(&self) -> bool {
        !self.request.is_http10 && !self.request.is_head()
    }

    /// Sends the first `length` bytes of what is unsent.
    async fn send(&mut self, length: usize) -> Result<(), End> {
        if !self.has_begun {
            self.begin(None);
        }
        let is_chunked = self.is_chunked() && length > 0;
        let output = &mut self.wire.output;
        if is_chunked {
            output.extend_from_slice(format!("{length:x}\r\n").as_bytes());
        }
        if !self.request.is_head() {
            output.extend_from_slice(&self.unsent[..length]);
        }
        if is_chunked {
            output.extend_from_slice(b"\r\n");
        }
        self.unsent.drain(..length);
        let begun = Instant::now();
        self.wire.flush().await?;
        self.sending += begun.elapsed();
        if self.sending > LONGEST { Err(End::Gone) } else { Ok(()) }
    }
}
