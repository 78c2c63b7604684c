//! Build script: generates the messages and traits of the gRPC service.

fn main() -> std::io::Result<()> {
    #[cfg(feature = "heavy")]
    tonic_prost_build::compile_protos("services/shop.proto")?;
    Ok(())
}
