// Package image checks what relay is shipped in, as far as that goes without a container engine: Dockerfile,
// docker-compose.yml, and the static binary under the conditions of the image.
package image
