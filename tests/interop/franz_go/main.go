// A Kafka client on franz-go: one command for each test, with a line of output for each step.
//
//	franz_go admin SEEDS TOPIC          create, describe, configure, move and delete a topic
//	franz_go produce SEEDS TOPIC        write the numbers 0, 1, … until standard input ends; print those that are acknowledged
//	franz_go read SEEDS TOPIC           read without a group until standard input ends; print each value
//	franz_go group SEEDS TOPIC COUNT    read COUNT different values with two members of one group
//
// The environment has what secured listeners need (security.go).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

func main() {
	commands := map[string]func([]string) error{"admin": admin, "produce": produce, "read": read, "group": group}
	if len(os.Args) < 4 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: franz_go admin|produce|read|group SEEDS TOPIC [COUNT]")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(seeds string, options ...kgo.Opt) (*kgo.Client, error) {
	secured, err := security()
	if err != nil {
		return nil, err
	}
	warnings := kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil))
	options = append(options, secured...)
	return kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(seeds, ",")...), warnings)...)
}

func admin(arguments []string) error {
	seeds, topic := arguments[0], arguments[1]
	// Without authorized operations kadm may answer from metadata that is some seconds old.
	ctx, cancel := context.WithTimeout(kadm.WithAuthorizedOps(context.Background()), patience)
	defer cancel()
	connected, err := client(seeds)
	if err != nil {
		return err
	}
	defer connected.Close()
	adm := kadm.NewClient(connected)
	value := "1000000"
	steps := []func() error{
		func() error {
			created, err := adm.CreateTopic(ctx, 2, 2, map[string]*string{"max.message.bytes": &value}, topic)
			fmt.Printf("created: %d partitions, %d replicas\n", created.NumPartitions, created.ReplicationFactor)
			return errors.Join(err, created.Err)
		},
		func() error { return describe(ctx, adm, topic) },
		func() error { return configure(ctx, adm, topic) },
		func() error { return move(ctx, adm, topic) },
		func() error { return logDirs(ctx, adm, topic) },
		func() error {
			_, err := adm.DeleteTopic(ctx, topic)
			if err != nil {
				return err
			}
			topics, err := adm.ListTopics(ctx)
			fmt.Printf("deleted: %t\n", !topics.Has(topic))
			return err
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func describe(ctx context.Context, adm *kadm.Client, topic string) error {
	topics, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	for _, partition := range topics[topic].Partitions.Sorted() {
		fmt.Printf("partition %d: %d replicas, %d in sync\n", partition.Partition, len(partition.Replicas), len(partition.ISR))
	}
	return topics.Error()
}

func configure(ctx context.Context, adm *kadm.Client, topic string) error {
	value := "compact"
	change := []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &value},
		{Op: kadm.DeleteConfig, Name: "max.message.bytes"},
	}
	changed, err := adm.AlterTopicConfigs(ctx, change, topic)
	if err != nil {
		return err
	}
	described, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	for _, config := range described[0].Configs {
		if config.Key == "cleanup.policy" || config.Key == "max.message.bytes" {
			fmt.Printf("config: %s=%s from %s\n", config.Key, config.MaybeValue(), config.Source)
		}
	}
	return changed[0].Err
}

func move(ctx context.Context, adm *kadm.Client, topic string) error {
	var wanted kadm.AlterPartitionAssignmentsReq
	wanted.Assign(topic, 0, []int32{3, 2})
	answers, err := adm.AlterPartitionAssignments(ctx, wanted)
	if err != nil {
		return err
	}
	if err := answers.Error(); err != nil {
		return err
	}
	var partition kadm.TopicsSet
	partition.Add(topic, 0)
	for {
		moving, err := adm.ListPartitionReassignments(ctx, partition)
		if err != nil {
			return err
		}
		if len(moving) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	topics, err := adm.ListTopics(ctx, topic)
	fmt.Printf("moved: %v\n", topics[topic].Partitions[0].Replicas)
	return err
}

func logDirs(ctx context.Context, adm *kadm.Client, topic string) error {
	var wanted kadm.TopicsSet
	wanted.Add(topic, 0)
	brokers, err := adm.DescribeAllLogDirs(ctx, wanted)
	if err != nil {
		return err
	}
	var holders []int
	brokers.Each(func(dir kadm.DescribedLogDir) {
		if _, found := dir.Topics.Lookup(topic, 0); found {
			holders = append(holders, int(dir.Broker))
		}
	})
	sort.Ints(holders)
	fmt.Printf("log directories: partition 0 on brokers %v\n", holders)
	return nil
}

func produce(arguments []string) error {
	seeds, topic := arguments[0], arguments[1]
	producer, err := client(seeds, kgo.DefaultProduceTopic(topic), kgo.RecordDeliveryTimeout(patience))
	if err != nil {
		return err
	}
	defer producer.Close()
	until := untilInputEnds()
	var failed error
	for number := 0; until.Err() == nil; number++ {
		text := strconv.Itoa(number)
		producer.Produce(context.Background(), kgo.KeyStringRecord(text, text), func(record *kgo.Record, err error) {
			if err != nil {
				failed = fmt.Errorf("record %s: %w", record.Value, err)
				return
			}
			fmt.Println(string(record.Value))
		})
		time.Sleep(time.Millisecond)
	}
	return errors.Join(producer.Flush(context.Background()), failed)
}

func read(arguments []string) error {
	seeds, topic := arguments[0], arguments[1]
	reader, err := client(seeds, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer reader.Close()
	for until := untilInputEnds(); until.Err() == nil; {
		reader.PollFetches(until).EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
	}
	return nil
}

// untilInputEnds returns a context that is cancelled when standard input ends.
func untilInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func group(arguments []string) error {
	seeds, topic := arguments[0], arguments[1]
	count, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// A member begins to read when both have partitions, so that the group has two members at work.
	var both sync.WaitGroup
	both.Add(2)
	var lock sync.Mutex
	values, readers := map[string]bool{}, map[int]bool{}
	var members []*kgo.Client
	for number := range 2 {
		var once sync.Once
		member, err := client(seeds, kgo.ConsumerGroup(topic+"-group"), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
				if len(assigned[topic]) > 0 {
					once.Do(both.Done)
				}
			}))
		if err != nil {
			return err
		}
		members = append(members, member)
		go func() {
			both.Wait()
			for ctx.Err() == nil {
				member.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
					lock.Lock()
					defer lock.Unlock()
					values[string(record.Value)], readers[number] = true, true
					if len(values) == count {
						cancel()
					}
				})
			}
		}()
	}
	<-ctx.Done()
	for _, member := range members {
		_ = member.CommitUncommittedOffsets(context.Background())
		member.Close()
	}
	lock.Lock()
	defer lock.Unlock()
	if len(values) != count {
		return fmt.Errorf("read %d values of %d", len(values), count)
	}
	fmt.Printf("read %d values with %d members\n", len(values), len(readers))
	return nil
}
