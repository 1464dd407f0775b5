//! The sum of the digests of forms. It does not depend on their order.

use blake2b_simd::Params;

/// What `widen.verification.records` compares, for the records or rows that were added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DigestSum {
    /// The sum of the digests modulo 2^128: an exclusive or would cancel two equal records out.
    pub digest: u128,
    pub records: u64,
    /// Values in the forms, or with `SourceReader` those beyond the forms.
    pub values: i64,
    pub converted: i64,
    limit: u64,
}

impl DigestSum {
    /// Return the sum of nothing. Digests whose checksum is not below the limit are left out.
    pub fn new(limit: u64) -> Self {
        DigestSum {
            limit,
            ..Default::default()
        }
    }

    pub fn add(&mut self, form: &[u8], values: i64, converted: i64) {
        let hash = Params::new().hash_length(16).hash(form);
        let mut digest = [0; 16];
        digest.copy_from_slice(hash.as_bytes());
        if self.limit < 1 << 32 && u64::from(crc32(&digest)) >= self.limit {
            return;
        }
        self.digest = self.digest.wrapping_add(u128::from_be_bytes(digest));
        self.records += 1;
        self.values += values;
        self.converted += converted;
    }
}

/// The checksum of `zlib.crc32`, which chooses the records of a sample.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (0_u32.wrapping_sub(crc & 1)));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn equal_records_do_not_cancel_out() {
        let mut sum = DigestSum::new(1 << 32);
        sum.add(b"{}", 0, 0);
        let one = sum.digest;
        sum.add(b"{}", 0, 0);
        assert_eq!(sum.digest, one.wrapping_add(one));
        assert_eq!(sum.records, 2);
    }
}
