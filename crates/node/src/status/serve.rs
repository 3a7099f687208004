//! The pages over HTTP. They are for operators on the same machine: whoever wants them elsewhere says so.
//!
//! A page elsewhere may have a name of its own lead to this machine (DNS rebinding) and have a visitor's browser read what is here.
//! The browser then asks in that name, so only requests that name this machine by its address, or `localhost`, are answered.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{StatusCode, header, uri::Authority},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use super::{ProcessPhase, StatusSource, metrics::metrics, page::page};

/// How long a visitor may take to ask, and how long to ask and be answered.
const ASKING: Duration = Duration::from_secs(5);
const ANSWERED: Duration = Duration::from_secs(10);
/// Visitors at a time. One more waits until one has left.
const VISITORS: usize = 64;

/// Pages that are being served; dropping it ends them.
pub struct StatusPages {
    /// Where.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for StatusPages {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the pages of a board until the result is dropped. Port 0 lets the system choose one.
pub async fn serve<S: StatusSource>(address: SocketAddr, source: Arc<S>) -> io::Result<StatusPages> {
    let board: Arc<dyn StatusSource> = source;
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let pages = Router::new()
        .route(
            "/",
            get(async |State(board): State<Arc<dyn StatusSource>>| html(page(&board.status()).into_string())),
        )
        .route(
            "/metrics",
            get(async |State(board): State<Arc<dyn StatusSource>>| plain(metrics(&board.status()))),
        )
        .route("/status.json", get(async |State(board): State<Arc<dyn StatusSource>>| Json(board.status())))
        .route("/healthz", get(health))
        .with_state(board)
        .layer(from_fn(move |request, next| named(address.ip(), request, next)));
    Ok(StatusPages { address, task: tokio::spawn(answer(listener, pages)) })
}

/// Answers visitors. They end with it.
async fn answer(listener: TcpListener, pages: Router) {
    let mut visitors = JoinSet::new();
    loop {
        while visitors.try_join_next().is_some() {}
        if visitors.len() >= VISITORS {
            visitors.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => drop(visitors.spawn(visit(stream, pages.clone()))),
            Err(error) => {
                tracing::warn!(%error, "a visitor of the status pages could not be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// One request on a connection, in a bounded time.
async fn visit(stream: TcpStream, pages: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(ASKING).keep_alive(false);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages));
    // Whoever asks badly or leaves is told so by the connection's end.
    let _ = tokio::time::timeout(ANSWERED, served).await;
}

/// Answers requests that name this machine, and no others.
async fn named(own: IpAddr, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().cloned().or_else(|| host?.parse::<Authority>().ok());
    if authority.is_some_and(|authority| is_own(own, authority.host())) {
        return next.run(request).await;
    }
    let why = "status pages answer to localhost and to the address they listen on\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Whether a host is this machine. Where pages listen on every address, any address may be its own; a name never is.
fn is_own(own: IpAddr, host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || address == own || own.is_unspecified(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

async fn health(State(board): State<Arc<dyn StatusSource>>) -> impl IntoResponse {
    let phase = board.status().phase;
    let code = if phase == ProcessPhase::Failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (code, format!("{}\n", phase.name()))
}

fn html(text: String) -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)], text)
}

fn plain(text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::{super::board::tests::board, *};

    async fn get_page(address: SocketAddr, path: &str) -> String {
        get_page_of(address, &format!("Host: {address}\r\n"), path).await
    }

    async fn get_page_of(address: SocketAddr, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn pages_are_served_as_long_as_wanted() {
        let board = Arc::new(board());
        let pages = serve("127.0.0.1:0".parse().unwrap(), board.clone()).await.unwrap();
        for (path, expected) in [
            ("/", "1 of 3 coalitions tested"),
            ("/metrics", "secsv_tests_done_total{round=\"2\"} 1"),
            ("/status.json", "\"phase\":\"running\""),
            ("/healthz", "running"),
        ] {
            let answer = get_page(pages.address, path).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(expected), "{path}: {answer}");
        }
        assert!(get_page(pages.address, "/else").await.starts_with("HTTP/1.1 404"));
        board.phase(ProcessPhase::Failed);
        assert!(get_page(pages.address, "/healthz").await.starts_with("HTTP/1.1 503"));
        let address = pages.address;
        drop(pages);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(TcpStream::connect(address).await.is_err(), "ended");
    }

    /// A name that somebody made lead here, with the very port, is not answered; nor is a request without any.
    #[tokio::test]
    async fn other_hosts_are_refused() {
        let pages = serve("127.0.0.1:0".parse().unwrap(), Arc::new(board())).await.unwrap();
        let port = pages.address.port();
        for host in
            ["rebound.example", "localhost.rebound.example", "127.0.0.1.rebound.example", "10.0.0.1", "x@y"]
        {
            for path in ["/", "/metrics", "/status.json", "/healthz"] {
                let line = format!("Host: {host}:{port}\r\n");
                let answer = get_page_of(pages.address, &line, path).await;
                assert!(
                    answer.starts_with("HTTP/1.1 421") && !answer.contains("running"),
                    "{host}: {answer}"
                );
            }
        }
        assert!(get_page_of(pages.address, "", "/").await.starts_with("HTTP/1.1 4"));
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.1:80", "[::1]", &pages.address.to_string()]
        {
            let answer = get_page_of(pages.address, &format!("Host: {host}\r\n"), "/healthz").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
        }
    }

    #[test]
    fn pages_that_listen_everywhere_answer_to_addresses_alone() {
        let everywhere = IpAddr::from([0, 0, 0, 0]);
        assert!(is_own(everywhere, "192.0.2.7") && is_own(everywhere, "[2001:db8::1]"));
        assert!(!is_own(everywhere, "rebound.example"));
        assert!(
            is_own(IpAddr::from([192, 0, 2, 7]), "192.0.2.7")
                && !is_own(IpAddr::from([192, 0, 2, 7]), "192.0.2.8")
        );
    }

    /// Visitors who never ask, and one who asks word by word: each is gone after a while, and others are answered.
    #[tokio::test]
    async fn visitors_who_do_not_ask_are_sent_away() {
        let pages = serve("127.0.0.1:0".parse().unwrap(), Arc::new(board())).await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..VISITORS + 1 {
            silent.push(TcpStream::connect(pages.address).await.unwrap());
        }
        let since = std::time::Instant::now();
        assert!(get_page(pages.address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(2 * ANSWERED, silent[0].read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "a visitor who asks nothing is kept for {:?}", since.elapsed());
    }
}
