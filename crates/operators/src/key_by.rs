//! `key_by`: computes key, hash and key group of each record, once.

use std::marker::PhantomData;

use millpond_core::{Data, Key, KeyHash, MaxParallelism, UserResult, hash::stable_hash};
use millpond_dataflow::{BoxBatch, Keyed, OpenContext, Operator, OperatorContext, Output};

use crate::record::for_each_record;

/// Gives each record a key.
pub(crate) struct KeyBy<T, K, F> {
    key: F,
    max_parallelism: MaxParallelism,
    scratch: Vec<u8>,
    output: Output<Keyed<K, T>>,
    input: PhantomData<fn(T)>,
}

impl<T: Data, K: Key, F> KeyBy<T, K, F> {
    pub(crate) fn new(key: F) -> Self {
        KeyBy {
            key,
            max_parallelism: MaxParallelism::default(),
            scratch: Vec::new(),
            output: Output::new(),
            input: PhantomData,
        }
    }
}

impl<T: Data, K: Key, F: FnMut(&T) -> UserResult<K> + 'static> Operator for KeyBy<T, K, F> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.max_parallelism = context.info.max_parallelism;
        Ok(())
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let KeyBy { key, max_parallelism, scratch, output, .. } = self;
        for_each_record(batch.downcast::<T>(), output, context.outputs, |record, _, output| {
            let key = key(&record)?;
            let hash = KeyHash::from_stable(stable_hash(&key, scratch)?, *max_parallelism);
            output.emit(Keyed { hash, key, value: record });
            Ok(())
        })
    }
}
