//! How often hashes were seen lately, roughly: a count-min sketch of four-bit counters that ages.
//!
//! A hash has four counters in one block of a cache line; its count is the least of them, so others can only make it
//! too large. After ten additions for each row the sketch is made for, all counters are halved: what was popular
//! long ago fades. 8 to 16 bytes for each row, at least 64.
//!
//! Source: Cormode and Muthukrishnan, An Improved Data Stream Summary: The Count-Min Sketch and its Applications (2005);
//! the halving is that of Einziger, Friedman and Manes, TinyLFU (2017).

/// Words of 16 counters. Each of the four counters of a hash lies in two words of its own.
const WORDS: usize = 8;
const COUNT_MAX: u64 = 15;
/// Additions for each row before all counters are halved, the paper's sample size.
const SAMPLE: usize = 10;

/// See the module.
pub(super) struct Sketch {
    /// A power of two of them.
    blocks: Vec<[u64; WORDS]>,
    /// Since the counters were last halved.
    additions: usize,
}

impl Default for Sketch {
    fn default() -> Sketch {
        Sketch { blocks: vec![[0; WORDS]], additions: 0 }
    }
}

impl Sketch {
    /// Makes room for `rows`. It never shrinks.
    pub(super) fn grow(&mut self, rows: usize) {
        // Both halves of the doubled sketch count what the old one did: a hash finds its counts in either.
        while self.blocks.len() * WORDS < rows {
            self.blocks.extend_from_within(..);
        }
    }

    /// Counts one more of this fingerprint.
    pub(super) fn add(&mut self, fingerprint: u32) {
        let block = self.block(fingerprint);
        let mut is_new = false;
        for (word, shift) in counters(fingerprint) {
            let word = &mut self.blocks[block][word];
            if *word >> shift & COUNT_MAX < COUNT_MAX {
                *word += 1 << shift;
                is_new = true;
            }
        }
        self.additions += usize::from(is_new);
        if self.additions >= SAMPLE * WORDS * self.blocks.len() {
            self.additions /= 2;
            for word in self.blocks.iter_mut().flatten() {
                *word = *word >> 1 & 0x7777_7777_7777_7777;
            }
        }
    }

    /// How often this fingerprint was counted, 0 to 15; never too small, but for the halving.
    pub(super) fn count(&self, fingerprint: u32) -> u64 {
        let block = &self.blocks[self.block(fingerprint)];
        counters(fingerprint).map(|(word, shift)| block[word] >> shift & COUNT_MAX).min().unwrap_or(0)
    }

    fn block(&self, fingerprint: u32) -> usize {
        fingerprint as usize & (self.blocks.len() - 1)
    }
}

/// Word and bit of the four counters within a block. Drawn from other bits than the block, so that two that share it
/// seldom share all four.
fn counters(fingerprint: u32) -> impl Iterator<Item = (usize, u32)> {
    let bits = u64::from(fingerprint).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
    (0..4).map(move |i| {
        let of_32 = (bits >> (5 * i) & 31) as usize;
        (2 * i + of_32 / 16, (of_32 % 16) as u32 * 4)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fingerprint like those of real hashes.
    fn fingerprint(i: u32) -> u32 {
        (i ^ 0x5bd1_e995).wrapping_mul(0x85eb_ca6b).rotate_left(13).wrapping_mul(0xc2b2_ae35)
    }

    #[test]
    fn it_counts_up_to_fifteen() {
        let mut sketch = Sketch::default();
        for times in 1..=20 {
            sketch.add(7);
            assert_eq!(sketch.count(7), times.min(COUNT_MAX));
        }
    }

    #[test]
    fn growing_keeps_the_counts() {
        let mut sketch = Sketch::default();
        for i in 0..8 {
            (0..=i).for_each(|_| sketch.add(fingerprint(i)));
        }
        let before: Vec<u64> = (0..8).map(|i| sketch.count(fingerprint(i))).collect();
        sketch.grow(1000);
        assert_eq!((0..8).map(|i| sketch.count(fingerprint(i))).collect::<Vec<_>>(), before);
        assert_eq!(sketch.blocks.len(), 128);
    }

    #[test]
    fn counts_are_seldom_too_large_and_never_too_small() {
        let mut sketch = Sketch::default();
        sketch.grow(1024);
        for i in 0..1024 {
            (0..1 + i % 4).for_each(|_| sketch.add(fingerprint(i)));
        }
        let over = |i: &u32| sketch.count(fingerprint(*i)) - u64::from(1 + i % 4);
        let wrong = (0..1024).filter(|i| over(i) > 0).count();
        assert!(wrong < 50, "{wrong} of 1024 too large");
    }

    #[test]
    fn what_is_not_seen_any_more_fades() {
        let mut sketch = Sketch::default();
        (0..15).for_each(|_| sketch.add(fingerprint(0)));
        // Ten additions for each of eight rows halve it; forty for each do so often enough to forget.
        (0..40 * WORDS as u32).for_each(|i| sketch.add(fingerprint(1 + i % 16)));
        assert!(sketch.count(fingerprint(0)) < 8, "{}", sketch.count(fingerprint(0)));
    }
}
