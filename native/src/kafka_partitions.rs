//! Which partition of a Kafka topic a key goes to, and which partitions are assigned to a writer.

use crate::byte_order::little_endian;

const SEED: u32 = 0x9747_B28C;
const FACTOR: u32 = 0x5BD1_E995;

/// Return the hash of Kafka's Java client: `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(data: &[u8]) -> u32 {
    let mut hash = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let word = little_endian(word) as u32;
        let word = word.wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR) ^ (word ^ word >> 24).wrapping_mul(FACTOR);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest) as u32).wrapping_mul(FACTOR);
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

/// The partitions of a topic that are assigned to a writer.
pub struct AssignedPartitions {
    count: u32,
    assigned: Vec<bool>,
}

impl AssignedPartitions {
    /// Return those of a topic with `count` partitions.
    pub fn new(count: u32, assigned: &[u32]) -> AssignedPartitions {
        let assigned = (0..count).map(|partition| assigned.contains(&partition)).collect();
        AssignedPartitions { count, assigned }
    }

    /// Return whether a key goes to one of them.
    pub fn has(&self, key: Option<&[u8]>) -> bool {
        self.assigned.get(partition_of(key, self.count) as usize).is_some_and(|&assigned| assigned)
    }
}
