//! Looks at what surrounds the process.

pub fn looks_around() -> std::io::Result<()> {
    let _ = std::env::args();
    let _ = std::env::args_os();
    std::env::set_current_dir(std::env::current_dir()?)?;
    std::env::current_exe()?;
    let _ = std::env::home_dir();
    let _ = std::env::temp_dir();
    let _ = std::env::var("HOME");
    let _ = std::env::var_os("HOME");
    let _ = std::env::vars();
    let _ = std::env::vars_os();
    Ok(())
}
