# The image holds the static binary and the public certificate authorities, nothing else: no shell, no package
# manager, no user database. It runs as a user without a name or rights, and writes nowhere.
#
#   docker build --build-arg VERSION=v1.2.3 -t relay .
#   docker run --read-only -e RELAY_DATABASE_URL=… -e RELAY_ROUTES=… relay
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X github.com/jobrelay/relay/internal/version.number=${VERSION}" \
    -o /relay ./cmd/relay

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /relay /relay
USER 65532:65532
# Inside a container the loopback address would reach nobody.
ENV RELAY_ADMIN_ADDR=:8321
EXPOSE 8321
# Liveness, not readiness: a relay whose database is away waits for it, and a restart would not help.
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s --retries=3 CMD ["/relay", "health"]
ENTRYPOINT ["/relay"]
CMD ["run"]
