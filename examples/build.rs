//! The messages and traits of the gRPC service, for it and for its test.

fn main() -> std::io::Result<()> {
    #[cfg(feature = "heavy")]
    tonic_prost_build::compile_protos("services/shop.proto")?;
    Ok(())
}
