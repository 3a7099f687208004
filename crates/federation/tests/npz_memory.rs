//! Claims of a NumPy archive's headers: memory follows the file's size, whatever its headers say.

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _, path::Path};

    use peak_alloc::PeakAlloc;
    use secsv_federation::{
        ClientId, ClientSpec, FederationSpec, LayerSpec, ModelSpec, RunDirectory, RunWriter, Tensor, TestSet,
        Weights,
    };

    #[global_allocator]
    static MEMORY: PeakAlloc = PeakAlloc;

    fn run(path: &Path) -> ClientId {
        let id = ClientId::new("north").unwrap();
        let layers = vec![LayerSpec::Linear { weight: "w".into(), bias: None }];
        let model = ModelSpec::new(vec![4], 2, layers);
        let client = |id: &str| ClientSpec::new(ClientId::new(id).unwrap(), 1.0);
        let clients = ["north", "south", "east", "west"].map(client).to_vec();
        let spec = FederationSpec::new("one".into(), 1, model, clients);
        let writer = RunWriter::create(path, &spec).unwrap();
        let tensor = Tensor::new(vec![2, 4], vec![0.5; 8]).unwrap();
        let weights = Weights::from_iter([("w".to_owned(), tensor)]);
        writer.initial_model(&weights).unwrap();
        for id in spec.ids() {
            writer.test_set(id, &TestSet::new(vec![4], vec![0.5; 8], vec![0, 1]).unwrap()).unwrap();
            writer.local_model(id, spec.round_ids().next().unwrap(), &weights).unwrap();
        }
        writer.global_model(spec.round_ids().next().unwrap(), &weights).unwrap();
        writer.finish().unwrap();
        id
    }

    fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn a_header_that_claims_gigabytes_takes_none() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let id = run(&path);
        let client = path.join("clients/north");
        fs::remove_file(client.join("test.safetensors")).unwrap();
        let mut archive = zip::ZipWriter::new(fs::File::create(client.join("test.npz")).unwrap());
        // 4 GiB of samples, by the header; 64 bytes of them are there.
        let arrays = [("x", npy("<f4", "(268435456, 4)", &[0; 64])), ("y", npy("|u1", "(4,)", &[0; 4]))];
        for (name, bytes) in arrays {
            archive.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(&bytes).unwrap();
        }
        archive.finish().unwrap();
        let opened = RunDirectory::open(&path).unwrap();
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        let refusal = opened.test_set(&id).unwrap_err().to_string();
        let peak = MEMORY.peak_usage() - before;
        println!("{peak} bytes of memory to refuse: {refusal}");
        assert!(refusal.contains("64 bytes of data where the header says 4294967296"), "{refusal}");
        assert!(
            peak < 1 << 20,
            "{peak} bytes for a file of {:?}",
            fs::metadata(client.join("test.npz")).unwrap().len()
        );
    }
}
