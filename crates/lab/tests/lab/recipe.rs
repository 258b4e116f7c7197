//! Images: the same program gives the same bytes, whatever its file looks like.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use aquifer_lab::recipe::archive_of;

#[test]
fn the_image_of_the_same_program_is_the_same_bytes_and_another_program_gives_others() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (containerfile, program) = (dir.path().join("Containerfile"), dir.path().join("program"));
    std::fs::write(&containerfile, "FROM scratch\nCOPY program /program\nUSER 65532:65532\n")?;
    let build = |content: &str, mode: u32, age: u64| -> Result<Vec<u8>> {
        std::fs::write(&program, content)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode))?;
        std::fs::File::options()
            .write(true)
            .open(&program)?
            .set_modified(SystemTime::now() - Duration::from_secs(age))?;
        let archive = dir.path().join("image.tar");
        archive_of(&containerfile, &program, &[], "localhost/aquifer-lab/same:1", &archive)?;
        Ok(std::fs::read(&archive)?)
    };
    let first = build("a program", 0o755, 0)?;
    ensure!(first == build("a program", 0o700, 10_000)?, "age or mode of the file changed the image");
    let version = b"io.buildah.version";
    ensure!(
        !first.windows(version.len()).any(|part| part == version),
        "the image depends on the buildah that made it"
    );
    ensure!(first != build("another program", 0o755, 0)?, "the image does not depend on the program");
    Ok(())
}
