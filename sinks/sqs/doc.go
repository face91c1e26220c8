// Package sqs publishes to Amazon SQS and to servers that speak its protocol.
//
// The walk of a batch: [Settings.Open] makes a sink; Publish looks up the queues ([queues]), turns each message into
// an entry of a request ([newEntry]) or rejects it by SQS's own rules, packs entries into calls ([plan]), makes the
// calls side by side ([publication.send]) and reads from each reply what became of every entry.
//
// What shapes the code:
//   - A reply of HTTP 200 may list entries as failed, and may leave some out; only what it lists as successful, with the
//     MD5 of what was sent, is accepted.
//   - The client library sends nothing twice. Only halves of a call that was refused as a whole are sent again, to find
//     the entry that the refusal is about.
//   - Whether a failed call may have reached the queue is decided by whether it got a connection ([attempt]), not by
//     the text of an error.
//   - In a FIFO queue no call has two messages of one group, as SQS may take the second without the first; the calls of
//     a group are made one after another, and none after one that failed. A standard queue keeps no order.
package sqs
