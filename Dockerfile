# One image with the three binaries; docker-compose.yml chooses which one runs.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-X github.com/mirrorflow/mirrorflow/internal/obs.Version=${VERSION}" -o /out/mirrorflow-api ./cmd/api \
 && CGO_ENABLED=0 go build -trimpath -ldflags "-X github.com/mirrorflow/mirrorflow/internal/obs.Version=${VERSION}" -o /out/mirrorflow-worker ./cmd/worker \
 && CGO_ENABLED=0 go build -trimpath -ldflags "-X github.com/mirrorflow/mirrorflow/internal/obs.Version=${VERSION}" -o /out/mirrorctl ./cmd/mirrorctl

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --create-home mirrorflow \
 && mkdir /keys && chown mirrorflow /keys
COPY --from=build /out/ /usr/local/bin/
USER mirrorflow
EXPOSE 8080 8081
CMD ["mirrorflow-api"]
