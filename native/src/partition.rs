//! Which Kafka partition a key goes to, and which partitions a writer has.

const SEED: u32 = 0x9747_B28C;
const FACTOR: u32 = 0x5BD1_E995;

/// Return the hash of Kafka's Java client: `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(data: &[u8]) -> u32 {
    let mut hash = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let word = crate::events::little(word) as u32;
        let word = word.wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR) ^ (word ^ word >> 24).wrapping_mul(FACTOR);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash = (hash ^ crate::events::little(rest) as u32).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(FACTOR);
    hash ^ hash >> 15
}

/// Return the partition of a key; no key goes to partition 0.
pub fn partition_of(key: Option<&[u8]>, count: u32) -> u32 {
    match key {
        Some(key) if count > 1 => (murmur2(key) & 0x7FFF_FFFF) % count,
        _ => 0,
    }
}

/// The partitions of a topic that a writer produces.
pub struct Owned {
    count: u32,
    mine: Vec<bool>,
}

impl Owned {
    /// Return those of a topic with `count` partitions.
    pub fn new(count: u32, mine: &[u32]) -> Owned {
        Owned { count, mine: (0..count).map(|partition| mine.contains(&partition)).collect() }
    }

    /// Return whether a key goes to one of them.
    pub fn owns(&self, key: Option<&[u8]>) -> bool {
        self.mine.get(partition_of(key, self.count) as usize).is_some_and(|&mine| mine)
    }
}
