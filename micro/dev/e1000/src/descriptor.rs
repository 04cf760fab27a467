// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors: the address of a buffer, and a second half that says what is or was done with it, as one number here. Legacy ones are
//! in SDM 3.2.3 and 3.3.3, advanced ones in the 82576's datasheet, 7.1.5 and 7.2.2.

/// How a card writes its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Legacy,
    Advanced,
}

/// What the card says of a buffer that it has written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes, as the card claims.
    pub length: usize,
    /// The packet ends here.
    pub is_end: bool,
    /// The receiver met carrier, symbol, sequence or other errors.
    pub is_damaged: bool,
    /// TCP's or UDP's checksum was looked at, and is right.
    pub checksum_valid: bool,
}

// Of legacy descriptors that were received.
const DONE: u64 = 1 << 32;
const END: u64 = 1 << 33;
/// Ignore the checksum bits.
const IXSM: u64 = 1 << 34;
/// TCP's or UDP's checksum was looked at, and is wrong.
const TCPCS: u64 = 1 << 37;
const TCPE: u64 = 1 << 45;
const DAMAGED: u64 = (1 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 7) << 40;

// Of advanced ones. The length is above them.
const ADVANCED_DONE: u64 = 1;
const ADVANCED_END: u64 = 1 << 1;
const ADVANCED_L4I: u64 = 1 << 5;
const ADVANCED_L4E: u64 = 1 << 29;
const ADVANCED_DAMAGED: u64 = 1 << 24 | 1 << 25 | 1 << 26 | 1 << 28 | 1 << 31;

// Of both, to send.
/// The packet ends with this piece.
const SEND_END: u64 = 1 << 24;
/// Append the frame check sequence.
const SEND_IFCS: u64 = 1 << 25;
/// Say when it is done.
const SEND_REPORT: u64 = 1 << 27;
/// The card is done with what was to be sent.
const SENT: u64 = 1 << 32;
/// An advanced descriptor, of data.
const SEND_ADVANCED: u64 = 1 << 29 | 3 << 20;
/// Where its first piece has the length of the whole packet.
const SEND_PAYLOAD_SHIFT: u32 = 46;

impl Format {
    /// `None` while the card has the buffer.
    pub fn received(self, rest: u64) -> Option<Written> {
        match self {
            Format::Legacy => (rest & DONE != 0).then_some(Written {
                length: usize::from(rest as u16),
                is_end: rest & END != 0,
                is_damaged: rest & DAMAGED != 0,
                checksum_valid: rest & (IXSM | TCPCS | TCPE) == TCPCS,
            }),
            Format::Advanced => (rest & ADVANCED_DONE != 0).then_some(Written {
                length: usize::from((rest >> 32) as u16),
                is_end: rest & ADVANCED_END != 0,
                is_damaged: rest & ADVANCED_DAMAGED != 0,
                checksum_valid: rest & (ADVANCED_L4I | ADVANCED_L4E) == ADVANCED_L4I,
            }),
        }
    }

    /// What sends a piece of `length` bytes of a packet that has `whole`; the last one is reported.
    pub fn send(self, length: usize, whole: usize, is_last: bool) -> u64 {
        let last = if is_last { SEND_END | SEND_REPORT } else { 0 };
        let kind = match self {
            Format::Legacy => 0,
            Format::Advanced => SEND_ADVANCED | (whole as u64) << SEND_PAYLOAD_SHIFT,
        };
        length as u64 | SEND_IFCS | last | kind
    }

    pub fn is_sent(self, rest: u64) -> bool {
        rest & SENT != 0
    }
}

/// What a card writes, for its model.
#[cfg(test)]
impl Format {
    pub fn written(self, says: Written) -> u64 {
        let bit = |is_set: bool, bits: u64| if is_set { bits } else { 0 };
        let length = says.length as u64;
        match self {
            // One kind of damage is enough.
            Format::Legacy => {
                length
                    | DONE
                    | bit(says.is_end, END)
                    | bit(says.is_damaged, DAMAGED & (1 << 41))
                    | bit(says.checksum_valid, TCPCS)
            }
            Format::Advanced => {
                length << 32
                    | ADVANCED_DONE
                    | bit(says.is_end, ADVANCED_END)
                    | bit(says.is_damaged, 1 << 26)
                    | bit(says.checksum_valid, ADVANCED_L4I)
            }
        }
    }

    /// The checksum was looked at and is wrong, or its bits mean nothing.
    pub fn doubtful(self, length: usize) -> u64 {
        let says = Written { length, is_end: true, is_damaged: false, checksum_valid: true };
        self.written(says) | if self == Format::Legacy { IXSM | TCPE } else { ADVANCED_L4E }
    }

    /// Whether a piece is the last of its packet, is reported, and how long the packet is, where that is said.
    pub fn sends(self, rest: u64) -> (bool, bool, Option<usize>) {
        assert!(
            rest & SEND_IFCS != 0 && (rest & SEND_ADVANCED == SEND_ADVANCED) == (self == Format::Advanced)
        );
        let whole = (self == Format::Advanced).then_some((rest >> SEND_PAYLOAD_SHIFT) as usize);
        (rest & SEND_END != 0, rest & SEND_REPORT != 0, whole)
    }

    pub fn sent(self, rest: u64) -> u64 {
        rest | SENT
    }
}
