//! The program `millpond`: looks at checkpoints, savepoints and state of any job, without the job's code.
//! Everything is in `millpond_cli`; here it is only put together, with Parquet, and with S3 and HDFS where
//! their features are on.

use std::process::ExitCode;

use millpond_cli::Extensions;

fn main() -> ExitCode {
    millpond_cli::tool_main(&extensions())
}

fn extensions() -> Extensions {
    #[cfg(any(feature = "s3", feature = "hdfs"))]
    return Extensions {
        storages: vec![std::sync::Arc::new(millpond_storage_object::ObjectStoreOpener)],
        ..Extensions::default()
    };
    #[cfg(not(any(feature = "s3", feature = "hdfs")))]
    Extensions::default()
}
