//! Touches files.

use std::path::Path;

pub fn touches_files(path: &Path) -> std::io::Result<()> {
    std::fs::canonicalize(path)?;
    std::fs::copy(path, path)?;
    std::fs::create_dir(path)?;
    std::fs::create_dir_all(path)?;
    std::fs::exists(path)?;
    std::fs::hard_link(path, path)?;
    let permissions = std::fs::metadata(path)?.permissions();
    std::fs::read(path)?;
    std::fs::read_dir(path)?;
    std::fs::read_link(path)?;
    std::fs::read_to_string(path)?;
    std::fs::remove_dir(path)?;
    std::fs::remove_dir_all(path)?;
    std::fs::remove_file(path)?;
    std::fs::rename(path, path)?;
    std::fs::set_permissions(path, permissions)?;
    std::fs::symlink_metadata(path)?;
    std::fs::write(path, [])
}

pub fn asks_a_path(path: &Path) -> std::io::Result<bool> {
    path.canonicalize()?;
    path.try_exists()?;
    path.metadata()?;
    path.symlink_metadata()?;
    path.read_dir()?;
    path.read_link()?;
    Ok(path.exists() || path.is_dir() || path.is_file() || path.is_symlink())
}

pub fn opens_files(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::DirBuilder::new().create(path)?;
    std::fs::OpenOptions::new().open(path)
}

pub fn lists_files(_entry: &std::fs::DirEntry) {}
