//! `cargo xtask image`: builds the operator's image and says where it is. Publishes it nowhere.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use xtask::operator_image::{self, Built, Profile};

use crate::{host, process};

/// Flags of `cargo xtask image`.
#[derive(clap::Args)]
pub struct Args {
    /// Build everything a second time from nothing in another folder, and fail unless both are the same bytes (minutes)
    #[arg(long)]
    verify: bool,
    /// The image that tests use: quick to build, large
    #[arg(long, conflicts_with = "verify")]
    dev: bool,
}

/// Builds the image and says where it is.
pub fn run(args: &Args) -> Result<()> {
    host::ensure_for_images()?;
    let start = Instant::now();
    let built = operator_image::image(if args.dev { Profile::Dev } else { Profile::Release })?;
    println!("image    {}", built.image.name);
    println!("archive  {}", built.image.archive.display());
    println!("bill     {} (CycloneDX; also in the image, /sbom)", built.bill.display());
    println!("program  {}", size(&built.program)?);
    println!("size     {}", size(&built.image.archive)?);
    println!(
        "digest   sha256:{} (of the archive, for comparing builds; the chart's image.digest is what your registry says after a push)",
        built.sha256()?
    );
    println!("took     {}", process::took(start.elapsed()));
    if args.verify {
        verify(&built)?;
    }
    Ok(())
}

/// Gets the image for tests.
pub async fn prepare(full: bool) -> Result<()> {
    host::ensure_for_images()?;
    let start = Instant::now();
    let profile = if full { Profile::Release } else { Profile::Dev };
    let built = tokio::task::spawn_blocking(move || operator_image::image(profile));
    let built = built.await.context("the build of the image was interrupted")??;
    println!(
        "image of the operator for tests: {} after {}",
        size(&built.image.archive)?,
        process::took(start.elapsed())
    );
    Ok(())
}

/// A copy of the sources in a folder with another name and another depth, so that no place can be in the bytes.
fn verify(first: &Built) -> Result<()> {
    let start = Instant::now();
    let dir = first.image.archive.with_file_name("verify");
    let copy = dir.join("a/copy/in/another/place");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    copy_sources(&process::root(), &copy)?;
    println!("building it again from nothing in {}", copy.display());
    // The copy is in no place where git would say of which commit it is.
    let revision = operator_image::revision(&process::root())?;
    let second = operator_image::image_of(&copy, &copy.join("target"), Profile::Release, &revision)?;
    for (what, one, two) in [
        ("programs", &first.program, &second.program),
        ("bills of materials", &first.bill, &second.bill),
        ("archives", &first.image.archive, &second.image.archive),
    ] {
        if fs::read(one)? != fs::read(two)? {
            bail!("not reproducible: the {what} differ: {} and {}", one.display(), two.display());
        }
    }
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    println!("the second build has the same bytes; it took {}", process::took(start.elapsed()));
    Ok(())
}

/// Copies what a build reads, and none of what one wrote.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (source, copy): (PathBuf, PathBuf) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == "target" || entry.file_name() == ".git" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_sources(&source, &copy)?;
        } else {
            fs::copy(&source, &copy).with_context(|| format!("cannot copy {}", source.display()))?;
        }
    }
    Ok(())
}

fn size(file: &Path) -> Result<String> {
    let bytes = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    Ok(format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20))
}
