#!/bin/bash
NGPU_HERE=8
NUM_NODES=1
HOST=localhost
PORT=6000
WORLD_SIZE=$(($NGPU_HERE*$NUM_NODES))
OUT=$1 # checkpoints
BOARD=$2 # tensorboard
VOCAB=$3
MERGES=$4
DATA=$5

LAUNCHER=(
    --nproc_per_node $NGPU_HERE
    --nnodes $NUM_NODES
    --master_addr $HOST
    --master_port $PORT
)
MODEL=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # flash, fused, ...
)
LEARNING=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --train-iters 500000
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --init-method-std 0.006
    --clip-grad 1.0
    --fp16
    --lr 6.0e-5
    --lr-decay-style cosine
    --min-lr 6.0e-6
    --lr-warmup-fraction .001
    --lr-decay-iters 430000
)
DEGREES=(
	--tensor-model-parallel-size 8
	--pipeline-model-parallel-size 16
)
TEXT=(--data-path $DATA --vocab-file $VOCAB --merge-file $MERGES --split 949,50,1)
REPORT=(
    --log-interval 100
    --save-interval 10000
    --eval-interval 1000
    --save $OUT
    --load $OUT
    --eval-iters 10
    --tensorboard-dir $BOARD
)

torchrun ${LAUNCHER[@]} pretrain_gpt.py \
    ${MODEL[@]} \
    ${LEARNING[@]} ${DEGREES[@]} \
    ${TEXT[@]} ${REPORT[@]}
