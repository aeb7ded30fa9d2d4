use std::ffi::OsString;

use millpond_core::ErrorKind;
use millpond_jobmanager::{Backend, RestartPolicy};

use super::*;

/// Facts with a settings file, variables and flags, each given as pairs of key and text.
struct World {
    directory: tempfile::TempDir,
    variables: Vec<(OsString, OsString)>,
    flags: Layer,
}

impl World {
    fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        World { directory, variables: Vec::new(), flags: Layer::default() }
    }

    fn file(self, text: &str) -> World {
        std::fs::write(self.directory.path().join(DEFAULT_FILE), text).unwrap();
        self
    }

    fn variable(mut self, name: &str, value: &str) -> World {
        self.variables.push((name.into(), value.into()));
        self
    }

    fn flag(mut self, setting: Setting, text: &str) -> World {
        self.flags.give(setting, text, Origin::Flag(format!("--{setting}")));
        self
    }

    fn gather(self) -> Result<Settings, CliError> {
        Settings::gather(Facts {
            name: "wordcount".to_owned(),
            cores: 3,
            directory: self.directory.path().to_owned(),
            config: None,
            variables: self.variables,
            flags: self.flags,
        })
    }

    fn refusal(self) -> String {
        let error = self.gather().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }
}

#[test]
fn without_layers_the_defaults_count() {
    let settings = World::new().gather().unwrap();
    assert_eq!(settings.job.name, "wordcount");
    assert_eq!(settings.job.workers, 3);
    assert_eq!(settings.job.checkpoints.interval_ms, Some(10_000));
    assert_eq!(settings.job.restart, RestartPolicy::default());
    assert_eq!(settings.job.max_parallelism, None);
    assert_eq!((&settings.start, &settings.checkpoints), (&Start::Latest, &None));
}

#[test]
fn flags_cover_variables_cover_the_file_covers_defaults() {
    // Which of the three layers speak, and who is heard: every combination.
    for mask in 0..8 {
        let mut world = World::new();
        let mut expected = (3, "default".to_owned());
        if mask & 1 != 0 {
            world = world.file("workers = 10\n");
            expected = (10, format!("file {}", world.directory.path().join(DEFAULT_FILE).display()));
        }
        if mask & 2 != 0 {
            world = world.variable("MILLPOND_WORKERS", "20");
            expected = (20, "variable MILLPOND_WORKERS".to_owned());
        }
        if mask & 4 != 0 {
            world = world.flag(Setting::Workers, "30");
            expected = (30, "flag --workers".to_owned());
        }
        let settings = world.gather().unwrap();
        let origin = settings.effective.get(Setting::Workers).unwrap().origin.to_string();
        assert_eq!((settings.job.workers, origin), expected, "layers {mask:03b}");
    }
}

#[test]
fn layers_are_covered_setting_by_setting() {
    let world = World::new().file("workers = 10\nretain = 7\n").variable("MILLPOND_WORKERS", "20");
    let settings = world.flag(Setting::From, "none").gather().unwrap();
    assert_eq!((settings.job.workers, settings.job.checkpoints.retained), (20, 7));
    assert_eq!(settings.start, Start::Nothing);
}

#[test]
fn a_bad_value_is_named_with_its_origin_in_every_layer() {
    let file = World::new().file("workers = 0\n");
    let path = file.directory.path().join(DEFAULT_FILE);
    let reason = "expected a whole number from 1 on";
    assert_eq!(file.refusal(), format!("bad value \"0\" for workers (file {}): {reason}", path.display()));
    let variable = World::new().variable("MILLPOND_WORKERS", "many").refusal();
    assert_eq!(variable, format!("bad value \"many\" for workers (variable MILLPOND_WORKERS): {reason}"));
    let flag = World::new().flag(Setting::Workers, "-1").refusal();
    assert_eq!(flag, format!("bad value \"-1\" for workers (flag --workers): {reason}"));
}

#[test]
fn every_setting_refuses_nonsense() {
    for setting in Setting::ALL {
        let nonsense = match setting {
            Setting::StateDir | Setting::CheckpointDir | Setting::From | Setting::Name => "",
            Setting::TlsCertificate | Setting::TlsKey | Setting::TlsCa | Setting::TlsName => "",
            Setting::Log => "millpond=loud",
            _ => "nonsense",
        };
        let refused = World::new().flag(setting, nonsense).refusal();
        assert!(refused.contains(&format!("for {setting} (flag --{setting})")), "{refused}");
    }
}

#[test]
fn a_misspelt_log_level_is_refused_instead_of_silencing_the_log() {
    for text in ["wran", "info,wran", "millpond_engine"] {
        let word = text.rsplit(',').next().unwrap();
        let refused = World::new().flag(Setting::Log, text).refusal();
        assert!(refused.ends_with(&format!("{word:?} is no level; for a target, write {word}=LEVEL")), "{refused}");
    }
    for text in ["warn", "WARN", "off", "warn,millpond_engine=debug", "a::b=trace", "info, x=off"] {
        assert!(World::new().flag(Setting::Log, text).gather().is_ok(), "{text}");
    }
}

#[test]
fn a_covered_bad_value_does_no_harm() {
    let settings = World::new().variable("MILLPOND_WORKERS", "many").flag(Setting::Workers, "2").gather();
    assert_eq!(settings.unwrap().job.workers, 2);
}

#[test]
fn a_named_file_must_exist() {
    let missing = PathBuf::from("no such file.toml");
    let facts = Facts { name: "job".to_owned(), cores: 1, config: Some(missing), ..Facts::default() };
    let error = Settings::gather(facts).unwrap_err();
    assert_eq!(error.to_string(), "cannot read settings file no such file.toml");
}

#[test]
fn checkpoints_go_below_the_state_directory_unless_said_otherwise() {
    let settings = World::new().flag(Setting::StateDir, "s").gather().unwrap();
    assert_eq!(settings.checkpoints, Some(Place::Directory("s/checkpoints".into())));
    let settings = World::new().flag(Setting::StateDir, "s").flag(Setting::CheckpointDir, "c").gather().unwrap();
    assert_eq!(settings.checkpoints, Some(Place::Directory("c".into())));
    let settings = World::new().flag(Setting::CheckpointDir, "s3://bucket/jobs").gather().unwrap();
    let place = settings.checkpoints.unwrap();
    assert!(matches!(&place, Place::Address(address) if address.scheme == "s3"), "{place:?}");
    assert_eq!(place.to_string(), "s3://bucket/jobs");
    assert!(World::new().flag(Setting::CheckpointDir, "s3:///jobs").gather().is_err());
}

#[test]
fn a_backend_and_its_memory_are_named_and_bounded() {
    let settings = World::new().flag(Setting::Backend, "rocksdb").flag(Setting::Memory, "2GB").gather().unwrap();
    assert_eq!((settings.job.backend, settings.job.memory), (Backend::Rocksdb, Some(2_000_000_000)));
    let refused = World::new().flag(Setting::Backend, "disk").refusal();
    assert_eq!(refused, "bad value \"disk\" for backend (flag --backend): expected heap or rocksdb");
    let refused = World::new().variable("MILLPOND_MEMORY", "10MB").refusal();
    assert_eq!(refused, "bad value \"10MB\" for memory (variable MILLPOND_MEMORY): expected at least 64MiB");
}

#[test]
fn local_recovery_needs_a_local_directory() {
    let settings = World::new().flag(Setting::StateDir, "state").file("local-recovery = true").gather().unwrap();
    assert!(settings.local_recovery);
    assert!(!World::new().gather().unwrap().local_recovery);
    let refused = World::new().flag(Setting::LocalRecovery, "true").refusal();
    assert!(refused.ends_with("the copies would go to the state-dir, and there is none"), "{refused}");
}

#[test]
fn tls_needs_all_three_files_and_names_the_one_that_is_missing() {
    let hosts = || World::new().flag(Setting::Hosts, "a:1,b:1").flag(Setting::Process, "1");
    assert_eq!(hosts().gather().unwrap().job.cluster.unwrap().tls, None);
    let two = |left_out: Setting| {
        let files = [Setting::TlsCertificate, Setting::TlsKey, Setting::TlsCa];
        let given = files.into_iter().filter(|setting| *setting != left_out);
        given.fold(hosts(), |world, setting| world.flag(setting, "file.pem"))
    };
    for missing in [Setting::TlsCertificate, Setting::TlsKey, Setting::TlsCa] {
        assert_eq!(two(missing).refusal(), format!("setting {missing} has no value"));
    }
    assert_eq!(hosts().flag(Setting::TlsName, "job").refusal(), "setting tls-certificate has no value");
    let whole = two(Setting::TlsKey).variable("MILLPOND_TLS_KEY", "key.pem").file("tls-name = \"job\"");
    let tls = whole.gather().unwrap().job.cluster.unwrap().tls.unwrap();
    assert_eq!((tls.key, tls.name.as_deref()), (PathBuf::from("key.pem"), Some("job")));
}

#[test]
fn kg_07_more_workers_than_key_groups_are_refused() {
    let refused = World::new().flag(Setting::Workers, "5").flag(Setting::MaxParallelism, "4").refusal();
    assert!(refused.ends_with("parallelism 5 is not in 1..=4 (the max parallelism)"), "{refused}");
    assert!(World::new().flag(Setting::MaxParallelism, "32769").gather().is_err());
}

#[test]
fn printed_settings_read_back_as_the_same_settings() {
    let world = World::new().flag(Setting::StateDir, "with \"quotes\" and \\").flag(Setting::Restart, "fixed:2:1s");
    let printed = world.variable("MILLPOND_CHANNEL_BYTES", "64KB").gather().unwrap();
    let read = World::new().file(&printed.to_toml()).gather().unwrap();
    assert_eq!(read.job, printed.job);
    assert_eq!(read.state_directory, printed.state_directory);
    let line = format!("{:<40} # variable MILLPOND_CHANNEL_BYTES\n", "channel-bytes = \"64KB\"");
    assert!(printed.to_toml().contains(&line));
    assert!(printed.to_toml().contains("# max-parallelism is not set\n"));
}
