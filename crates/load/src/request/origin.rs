//! A value in an answer: whether it is one of its key, to its last byte, and where it comes from.
//!
//! It is made again as it was when it was written, and compared; how, `request` knows.

use super::{Request, Requests, SlotValues};
use crate::encode::{base64_bytes, read_base64};
use crate::mix::Operation;
use crate::piece::{Piece, Placeholder};
use crate::verify::{MARK_BYTES, Mark};
use memchr::memmem;

impl Requests {
    /// Compares `body`, which begins as `request` expects of a read of key `number`, to its last byte. `Err` when it is no
    /// value of that key; otherwise where it comes from, `None` where it carries no mark: because it is too short for one,
    /// was written by a run without them, or is not to be found in the answer.
    pub(crate) fn origin(
        &self,
        request: &Request,
        number: u64,
        body: &[u8],
        [whole, scratch]: &mut [Vec<u8>; 2],
    ) -> Result<Option<Mark>, ()> {
        let Some(template) = &self.forms[request.server][Operation::Get as usize] else { return Ok(None) };
        let is_value =
            |piece: &Piece| matches!(piece.placeholder, Some(Placeholder::Value | Placeholder::ValueBase64));
        let Some(place) = template.proof.iter().position(is_value) else { return Ok(None) };
        let encoded = template.proof[place].placeholder == Some(Placeholder::ValueBase64);
        let start = match template.form.anywhere {
            true => memmem::find(body, &request.expected).ok_or(())?,
            false => 0,
        };
        let value = body.get(start + request.value_at..).ok_or(())?;

        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let mark_at = self.key_prefix.len() + digits.len() + "=".len();
        let front = match encoded {
            true => {
                scratch.clear();
                let characters = base64_bytes(mark_at + MARK_BYTES);
                read_base64(scratch, &value[..value.len().min(characters)]);
                scratch.as_slice()
            }
            false => value,
        };
        let mark = front.get(mark_at..mark_at + MARK_BYTES).and_then(|text| Mark::read(text, number));
        let value_bytes = match &mark {
            Some(mark) => Some(mark.value_bytes),
            None if template.form.whole => Some(value.len()),
            // Up to the text that follows the value, which has no character of it.
            None => template.proof.get(place + 1).filter(|next| !next.text.is_empty()).and_then(|next| {
                let end = memmem::find(value, &next.text)?;
                scratch.clear();
                read_base64(scratch, &value[..end]);
                Some(if encoded { scratch.len() } else { end })
            }),
        };
        let short = mark_at + MARK_BYTES;
        let Some(value_bytes) = value_bytes else {
            // Where values may be too short for a mark, this may be one of them; where it ends is not to be seen.
            return if self.sizes.min < short { Ok(None) } else { Err(()) };
        };
        if value_bytes > body.len() || mark.is_none() && value_bytes < self.sizes.min.min(short) {
            return Err(());
        }
        whole.clear();
        let values = SlotValues { number, digits, version: &[], value_bytes, mark, body_bytes: 0 };
        for piece in &template.proof {
            self.fill(whole, scratch, piece, values);
        }
        let right =
            if template.form.whole { body == whole.as_slice() } else { body[start..].starts_with(whole) };
        if right { Ok(mark) } else { Err(()) }
    }
}
