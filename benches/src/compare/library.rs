//! Finding a C library, and functions in it.

use std::error::Error;
use std::ffi::{c_int, OsString};
use std::fs::read_dir;
use std::path::{Path, PathBuf};
use std::{env, io};

use crate::error::{Failure, Outcome};

/// How to find a library.
#[derive(Debug)]
pub struct Known {
    /// What `--peer` calls it.
    pub name: &'static str,
    /// Its files, newest first.
    pub files: &'static [&'static str],
    /// Folders of Python packages that contain it.
    pub packages: &'static [&'static str],
    /// How to get it.
    pub install: &'static str,
    /// What its functions' names may begin with.
    pub prefixes: &'static [&'static str],
    /// A function that every usable build has.
    pub has: &'static str,
    /// Environment to load it in, unless the user has set it.
    pub environment: &'static [(&'static str, &'static str)],
}

/// A C library, loaded for the rest of the process.
#[derive(Debug)]
pub struct Library {
    handle: libloading::Library,
    prefix: &'static str,
    known: &'static Known,
    path: PathBuf,
}

impl Library {
    /// Loads the file `named`, or the first that is found: by the loader, then where Python's packages
    /// and vendors' installers put it.
    pub fn open(known: &'static Known, named: Option<&Path>) -> Outcome<&'static Self> {
        for (name, value) in known.environment {
            if env::var_os(name).is_none() {
                env::set_var(name, value);
            }
        }
        let Known { name, install, .. } = known;
        let paths = match named {
            Some(path) => vec![path.to_owned()],
            None => {
                let anywhere = known.files.iter().map(PathBuf::from);
                let found =
                    folders(known).into_iter().flat_map(|f| known.files.iter().map(move |l| f.join(l)));
                anywhere.chain(found.filter(|p| p.exists())).collect()
            }
        };
        let mut problem = String::new();
        for path in paths {
            // SAFETY: a well-known library, which runs its usual initialisation.
            let handle = match unsafe { libloading::Library::new(&path) } {
                Ok(handle) => handle,
                Err(e) => {
                    // The loader's search finds nothing on most machines; a file that is there tells more.
                    if named.is_some() || path.exists() {
                        problem = format!(": {}", e.source().map_or(e.to_string(), |why| why.to_string()));
                    }
                    continue;
                }
            };
            let has = |prefix: &str| {
                // SAFETY: its address is not used.
                unsafe { handle.get::<unsafe extern "C" fn()>(format!("{prefix}{}", known.has)) }.is_ok()
            };
            match known.prefixes.iter().find(|prefix| has(prefix)) {
                Some(prefix) => return Ok(Box::leak(Box::new(Self { handle, prefix, known, path }))),
                None => problem = format!(": {} has no {}", path.display(), known.has),
            }
        }
        let looked_for = known.files.join(", ");
        Err(Failure::Failed(match named {
            Some(path) => {
                format!("cannot use {} as {name}{problem}; to install it: {install}", path.display())
            }
            None => format!("{name} not found ({looked_for}){problem}; to install it: {install}"),
        }))
    }

    /// A function.
    ///
    /// # Safety
    /// `F` must be the function pointer type of `symbol`.
    pub unsafe fn function<F: Copy>(&'static self, symbol: &str) -> Outcome<F> {
        // SAFETY: the caller vouches for the type; the library stays loaded.
        let found = unsafe { self.handle.get::<F>(format!("{}{symbol}", self.prefix)) };
        found.map(|f| *f).map_err(|_| {
            Failure::Failed(format!("this {} has no {symbol} ({})", self.known.name, self.path.display()))
        })
    }

    /// Sets the number of threads with the function `set`; `get` has to agree.
    pub fn set_threads(&'static self, set: &str, get: &str, threads: usize) -> Outcome {
        // SAFETY: every library's function to set its threads takes a C integer, and that to get them
        // returns one.
        let (set, get) = unsafe {
            (
                self.function::<unsafe extern "C" fn(c_int)>(set)?,
                self.function::<unsafe extern "C" fn() -> c_int>(get)?,
            )
        };
        // SAFETY: any number will do.
        let got = unsafe {
            set(threads as c_int);
            get()
        };
        if got as usize == threads {
            return Ok(());
        }
        Err(Failure::Failed(format!("{} was told to use {threads} threads and uses {got}", self.known.name)))
    }

    /// What it says about itself, and its file.
    pub fn describe(&self, text: &str) -> String {
        format!("{} ({})", text.trim(), self.path.display())
    }
}

/// Where pip, conda and vendors' installers put libraries that the loader does not search.
fn folders(known: &Known) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "MKLROOT"] {
        folders.extend(env::var_os(variable).map(|v| PathBuf::from(v).join("lib")));
    }
    // Beside every folder of programs, Python's among them.
    if let Some(path) = env::var_os("PATH") {
        folders.extend(env::split_paths(&path).filter_map(|bin| Some(bin.parent()?.join("lib"))));
    }
    if let Some(home) = env::home_dir() {
        folders.push(home.join(".local/lib"));
        folders.extend(children(&home.join(".pyenv/versions"), |_| true).map(|v| v.join("lib")));
    }
    folders.extend(["/usr/local/lib", "/opt/intel/oneapi/mkl/latest/lib"].map(PathBuf::from));
    let mut all = Vec::new();
    for folder in folders {
        let python = |name: &OsString| name.to_string_lossy().starts_with("python3");
        let packages = children(&folder, python)
            .flat_map(|p| known.packages.iter().map(move |package| p.join("site-packages").join(package)));
        all.extend(packages);
        all.push(folder);
    }
    all
}

/// The entries of a folder, or nothing.
fn children(folder: &Path, wanted: impl Fn(&OsString) -> bool) -> impl Iterator<Item = PathBuf> {
    let entries = read_dir(folder).into_iter().flatten().filter_map(io::Result::ok);
    entries.filter(move |e| wanted(&e.file_name())).map(|e| e.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOWHERE: Known = Known {
        name: "nowhere",
        files: &["libno-such-library.so.9"],
        packages: &["no_such_package"],
        install: "pip install nowhere",
        prefixes: &["", "other_"],
        has: "no_such_function",
        environment: &[],
    };

    #[test]
    fn a_missing_library_is_told_with_the_command_that_installs_it() {
        for named in [None, Some(Path::new("/no/such/file.so"))] {
            let Err(Failure::Failed(text)) = Library::open(&NOWHERE, named) else { panic!("opened") };
            assert!(text.contains("nowhere") && text.contains("pip install nowhere"), "{text}");
            assert_eq!(named.is_some(), text.contains("/no/such/file.so"), "{text}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn another_library_is_refused() {
        let Err(Failure::Failed(text)) = Library::open(&NOWHERE, Some(Path::new("libc.so.6"))) else {
            panic!("opened")
        };
        assert!(text.contains("no_such_function"), "{text}");
    }
}
