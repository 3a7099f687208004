fn main() {
    for r in secsv_he::measure::kernel_rows().unwrap() {
        println!("{r:?}");
    }
}
