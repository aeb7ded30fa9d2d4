//! One hint to the processor: this line of memory will be needed soon.
//!
//! The only place in this crate with `unsafe`: the hint reads nothing, cannot fault and changes no
//! value. Does nothing on processors other than x86-64.

/// Asks for the cache lines at the start and at the end of `target`.
#[inline(always)]
pub(crate) fn prefetch<T>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[expect(unsafe_code, reason = "a prefetch of a valid reference has no effect but on the cache")]
        unsafe {
            let start = std::ptr::from_ref(target).cast::<i8>();
            _mm_prefetch::<_MM_HINT_T0>(start);
            if size_of::<T>() > 8 {
                _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(size_of::<T>() - 1));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}
