package native

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jobrelay/relay/internal/services/host"
)

// Versions of what runs natively; docker-compose.yml names the same.
const (
	KafkaVersion     = "4.4.0"
	ElasticMQVersion = "1.6.14"
	log4jVersion     = "2.26.1"
)

// Where the cache has their jars.
const (
	kafkaFolder     = "kafka-" + KafkaVersion
	elasticMQFolder = "elasticmq-" + ElasticMQVersion
)

var (
	// Kafka brings slf4j 1.7, so its log binding is log4j-slf4j-impl, not the one for slf4j 2.
	kafkaJars = []string{
		"org.apache.kafka:kafka_2.13:" + KafkaVersion,
		"org.apache.logging.log4j:log4j-slf4j-impl:" + log4jVersion,
		"org.apache.logging.log4j:log4j-core:" + log4jVersion,
	}
	elasticMQJars = []string{"org.elasticmq:elasticmq-server_2.13:" + ElasticMQVersion}
)

// jars returns the path of java and a folder with the artifacts and everything that they depend on, from the cache or,
// once, by Maven.
func (e *Env) jars(ctx context.Context, name string, artifacts []string) (java, dir string, err error) {
	if err := e.install(ctx, needJava); err != nil {
		return "", "", err
	}
	if java, err = exec.LookPath("java"); err != nil {
		return "", "", err
	}
	dir, err = host.Fill(ctx, e.Cache, name, func(dir string) error {
		if err := e.install(ctx, needMaven); err != nil {
			return err
		}
		e.Log.Info("downloading, once", "what", name)
		// Maven keeps its repository in the cache as well: nothing is written outside it. It isn't made for two
		// writers at once.
		lock, err := host.Acquire(ctx, filepath.Join(e.Cache, "maven.lock"))
		if err != nil {
			return err
		}
		defer lock.Release()
		pom := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(pom, []byte(project(artifacts)), 0o644); err != nil {
			return fmt.Errorf("write the list of artifacts: %w", err)
		}
		mvn, err := exec.LookPath("mvn")
		if err != nil {
			return err
		}
		return run(ctx, mvn, "-q", "-B", "-f", pom, "-Dmaven.repo.local="+filepath.Join(e.Cache, "maven"),
			"dependency:copy-dependencies", "-DoutputDirectory="+dir, "-DincludeScope=runtime")
	})
	return java, dir, err
}

func project(artifacts []string) string {
	var b strings.Builder
	b.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		`<groupId>relay</groupId><artifactId>services</artifactId><version>1</version><packaging>pom</packaging><dependencies>`)
	for _, artifact := range artifacts {
		part := strings.Split(artifact, ":")
		fmt.Fprintf(&b, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>", part[0], part[1], part[2])
	}
	b.WriteString("</dependencies></project>")
	return b.String()
}

// java is the command line of a JVM on those jars. Without Optimize it gives up the JVM's last compiler, which takes
// three quarters of the processor time of a start: 4 s instead of 16 for a broker that serves a few tests.
func (e *Env) java(heap, jars string, args ...string) []string {
	line := []string{"-Xmx" + heap, "-cp", jars + "/*"}
	if !e.Optimize {
		line = append(line, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
	}
	return append(line, args...)
}
