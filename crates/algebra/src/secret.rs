//! A wrapper for what must not be printed, logged, compared by accident or left in memory.

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// Holds a secret: no `Debug`, `Display`, `Serialize` or `PartialEq`; wiped when dropped. Whoever needs the
/// value writes `expose`, which a reviewer can search for.
///
/// ```compile_fail
/// println!("{:?}", secsv_algebra::Secret::new([0u8; 32]));
/// ```
/// ```compile_fail
/// let _ = secsv_algebra::Secret::new([0u8; 32]) == secsv_algebra::Secret::new([0u8; 32]);
/// ```
#[derive(Clone)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes a value into custody.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for the one computation that needs it.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// The value, to be changed in place.
    pub fn expose_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Zeroize + AsRef<[u8]>> Secret<T> {
    /// Whether two secrets of bytes are equal, in a time that depends on their lengths alone.
    pub fn constant_time_eq(&self, other: &Self) -> bool {
        self.0.as_ref().ct_eq(other.0.as_ref()).into()
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Overwrites numbers with zeros, many at a time: element by element it would take as long as computing them.
pub fn wipe<T: Copy + Default>(numbers: &mut [T]) {
    numbers.fill(T::default());
    zeroize::optimization_barrier(numbers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, rc::Rc};

    struct Spy(Rc<Cell<bool>>);
    impl Zeroize for Spy {
        fn zeroize(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn dropping_wipes() {
        let wiped = Rc::new(Cell::new(false));
        drop(Secret::new(Spy(wiped.clone())));
        assert!(wiped.get());
    }

    #[test]
    fn comparison_is_by_content() {
        let a = Secret::new([1u8, 2]);
        assert!(a.constant_time_eq(&Secret::new([1, 2])));
        assert!(!a.constant_time_eq(&Secret::new([1, 3])));
    }
}
