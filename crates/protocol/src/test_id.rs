//! Numbers of tests: of those that were asked for, and of the attempts at them.

use std::fmt;

use crate::{
    Error,
    codec::{Reader, Writer},
    error::CodecError,
};

/// Where the attempt stands in the number of a test.
const ATTEMPT: u32 = 40;

/// A test that was asked for, whatever the attempts at it: its number counts requests, and has 40 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// The first.
    pub const FIRST: Self = Self(0);
    /// The last that there may be.
    pub const LAST: Self = Self((1 << ATTEMPT) - 1);

    /// The one behind it.
    pub fn next(self) -> Result<Self, Error> {
        let is_last = self == Self::LAST;
        if is_last { Err(Error::Unsupported { what: "more than 2^40 tests" }) } else { Ok(Self(self.0 + 1)) }
    }

    /// The number.
    pub fn to_wire(self) -> u64 {
        self.0
    }

    /// A request by its number.
    pub fn from_wire(number: u64) -> Result<Self, CodecError> {
        let (what, expected) = ("number of a request", Self::LAST.0);
        if number > expected {
            return Err(CodecError::TooLarge { what, expected, found: number });
        }
        Ok(Self(number))
    }

    pub(crate) fn write(self, w: &mut Writer) -> &mut Writer {
        w.u64(self.to_wire())
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        Self::from_wire(r.u64()?)
    }
}

impl From<u32> for RequestId {
    fn from(number: u32) -> Self {
        Self(number.into())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One attempt at a test. No two have the same number, so nothing of one is taken for another's, and no randomness serves two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TestId {
    /// How often others had taken over from clients that stayed away. It comes first, so that tests are in the order of their numbers.
    pub attempt: u16,
    /// The test that was asked for.
    pub request: RequestId,
}

impl TestId {
    /// The first attempt at a test.
    pub fn first(request: impl Into<RequestId>) -> Self {
        Self { attempt: 0, request: request.into() }
    }

    /// The number, in which the attempt stands above the request.
    pub fn to_wire(self) -> u64 {
        u64::from(self.attempt) << ATTEMPT | self.request.0
    }

    /// A test by its number.
    pub fn from_wire(number: u64) -> Result<Self, CodecError> {
        let (what, expected, found) = ("attempts at a test", u16::MAX.into(), number >> ATTEMPT);
        let attempt = u16::try_from(found).map_err(|_| CodecError::TooLarge { what, expected, found })?;
        Ok(Self { attempt, request: RequestId(number & RequestId::LAST.0) })
    }

    pub(crate) fn write(self, w: &mut Writer) -> &mut Writer {
        w.u64(self.to_wire())
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        Self::from_wire(r.u64()?)
    }
}

impl fmt::Display for TestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            0 => self.request.fmt(f),
            attempt => write!(f, "{} attempt {attempt}", self.request),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tests_are_known_by_their_numbers(numbers in prop::array::uniform2(0u64..1 << 56)) {
            let tests = numbers.map(|number| TestId::from_wire(number).unwrap());
            prop_assert_eq!(tests.map(TestId::to_wire), numbers);
            prop_assert_eq!(tests[0].cmp(&tests[1]), numbers[0].cmp(&numbers[1]));
        }
    }

    #[test]
    fn numbers_that_no_test_has_are_refused() {
        let last = TestId { attempt: u16::MAX, request: RequestId::LAST };
        assert_eq!(TestId::from_wire(last.to_wire()), Ok(last));
        assert!(TestId::from_wire(last.to_wire() + 1).is_err());
        assert_eq!(RequestId::from_wire(RequestId::LAST.to_wire()), Ok(RequestId::LAST));
        assert!(RequestId::from_wire(RequestId::LAST.to_wire() + 1).is_err());
        assert!(RequestId::LAST.next().is_err());
    }
}
