# Builds secsv from this repository: docker build -t secsv . (docs/OPERATORS.md says how it is run).
FROM rust:1.91-bookworm AS build
WORKDIR /src
COPY . .
# The repository's history is not copied: the version says which commit was built.
ARG SECSV_COMMIT=unknown
ENV SECSV_COMMIT=${SECSV_COMMIT}
RUN cargo build --release --locked -p secsv-cli && strip target/release/secsv

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/secsv --create-home secsv
COPY --from=build /src/target/release/secsv /usr/local/bin/secsv
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/secsv/
USER secsv
WORKDIR /var/lib/secsv
VOLUME /var/lib/secsv
ENTRYPOINT ["/usr/local/bin/secsv"]
CMD ["--help"]
