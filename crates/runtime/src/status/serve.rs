//! The pages over HTTP. They are for operators on the same machine: whoever wants them elsewhere says so.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{Board, Phase, metrics::metrics, page::page};

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
pub async fn serve(address: SocketAddr, board: Arc<Board>) -> io::Result<StatusPages> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let pages = Router::new()
        .route("/", get(async |State(board): State<Arc<Board>>| html(page(&board.status()).into_string())))
        .route("/metrics", get(async |State(board): State<Arc<Board>>| plain(metrics(&board.status()))))
        .route("/status.json", get(async |State(board): State<Arc<Board>>| Json(board.status())))
        .route("/healthz", get(health))
        .with_state(board);
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, pages).await {
            tracing::warn!(%error, "the status pages ended");
        }
    });
    Ok(StatusPages { address, task })
}

async fn health(State(board): State<Arc<Board>>) -> impl IntoResponse {
    let phase = board.status().phase;
    let code = if phase == Phase::Failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
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
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::{super::board::tests::board, *};

    async fn get_page(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: status\r\nConnection: close\r\n\r\n");
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
        board.phase(Phase::Failed);
        assert!(get_page(pages.address, "/healthz").await.starts_with("HTTP/1.1 503"));
        let address = pages.address;
        drop(pages);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(TcpStream::connect(address).await.is_err(), "ended");
    }
}
