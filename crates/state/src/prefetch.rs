//! One hint to the processor: this line of memory will be needed soon.
//!
//! The only place in this crate with `unsafe`: the hint reads nothing, cannot fault and changes no
//! value. Does nothing on processors other than x86-64.

/// Asks for the cache line at the start of `target`.
#[inline(always)]
pub(crate) fn prefetch<T>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[expect(
            unsafe_code,
            reason = "a prefetch of a valid reference has no effect but on the cache"
        )]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(target).cast::<i8>());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}
