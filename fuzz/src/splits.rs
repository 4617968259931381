//! The pieces in which bytes may arrive.

/// Where `bytes` are cut, several times: into single bytes and into two everywhere if they are few, and into some pieces that
/// depend on the bytes alone.
pub(crate) fn splits(bytes: &[u8]) -> Vec<Vec<usize>> {
    const SINGLE_BYTES_MAX: usize = 600;
    const TWO_PIECES_MAX: usize = 64;
    const OTHERS: usize = 4;
    let len = bytes.len();
    let mut splits = Vec::new();
    if len <= SINGLE_BYTES_MAX {
        splits.push((1..len).collect());
    }
    if len <= TWO_PIECES_MAX {
        splits.extend((1..len).map(|cut| vec![cut]));
    }
    // FNV-1a, and a linear congruential generator.
    let seed = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut state = seed;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    for _ in 0..OTHERS {
        let mut cuts: Vec<usize> = (0..=next(4)).map(|_| next(len)).filter(|cut| *cut > 0).collect();
        cuts.sort_unstable();
        cuts.dedup();
        splits.push(cuts);
    }
    splits
}
